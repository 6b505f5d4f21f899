"""Compares a quantization table from a side file with a model.

Such files have three kinds of faults, all silent in other tools: they name tensors that are not in
the graph, list a parameter as an activation or the other way round, and specify types that the
tensor cannot have. They also leave tensors out that a target would quantize: many tools do so on
purpose (a layer that stays float, weights that the target rounds itself). That is no fault, but it
is told. All of it is found before anything is applied, and reported together. What a target
accepts is the question of its scheme, for files as for models.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.backend import Backend
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.lint.range_needs import LINEAR, missing_ranges
from onnxq.near_words import closest
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role

MOST_SHOWN = 20
"""Most lines of one kind in a message; the rest is counted."""

_HEADINGS = {
    "unknown": "in the file, not in the graph",
    "missing": "in the graph, without a range",
    "weights": "weights without a range",
    "wrong_group": "in the wrong group",
    "wrong_type": "with a type that is not possible",
}


@dataclass
class Coverage:
    """The mismatches, in words, by tensor."""

    unknown: dict[str, str] = field(default_factory=dict)
    """Tensors of the file that are not in the graph."""
    missing: dict[str, str] = field(default_factory=dict)
    """Activations of the graph that need a range and have none."""
    weights: dict[str, str] = field(default_factory=dict)
    """Weights of the graph that need a range and have none."""
    wrong_group: dict[str, str] = field(default_factory=dict)
    wrong_type: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether everything matches, and nothing is left out."""
        return not any(vars(self).values())

    @property
    def faulty(self) -> bool:
        """Whether the file says what is not true of the graph."""
        return bool(self.unknown or self.wrong_group or self.wrong_type)

    @property
    def unusable(self) -> set[str]:
        """Tensors of the file whose rows cannot be applied."""
        return {*self.unknown, *self.wrong_type}

    def lines(self) -> list[str]:
        """Every mismatch on a line, grouped under headings."""
        lines = []
        for kind, found in vars(self).items():
            if found:
                lines.append(f"{len(found)} {_HEADINGS[kind]}:")
            for name, why in list(found.items())[:MOST_SHOWN]:
                lines.append(f"  '{name}'{why and f' ({why})'}")
            if len(found) > MOST_SHOWN:
                lines.append(f"  ... and {len(found) - MOST_SHOWN} more")
        return lines


def examine(
    table: QParamTable,
    model: Model,
    *,
    backend: Backend | None = None,
    stay_float: frozenset[str] = frozenset(),
    want_weights: bool = True,
) -> Coverage:
    """Compare a table, with the roles of the file's groups, with a float model.

    `stay_float` are tensors that the file leaves float on purpose.
    """
    parts = TensorParts(model)
    found = Coverage()
    named = dict.fromkeys(
        (*(row.tensor for row in table), *stay_float, *(row.tensor for row in table.logarithmic))
    )
    found.unknown.update((name, "") for name in named if parts.find(name) is None)
    # Similar names are suggested for the first few only: comparing names takes time.
    candidates = [name for name in parts.tensors if name not in named]
    for name in list(found.unknown)[: MOST_SHOWN // 2]:
        near = closest(name, candidates, 1, 0.6)
        found.unknown[name] = f"did you mean '{near[0]}'?" if near else ""
    for row in table:
        if row.tensor in found.unknown:
            continue
        why = _wrong_group(row, parts)
        if why:
            found.wrong_group[row.tensor] = why
        why = _wrong_type(row, parts)
        if why:
            found.wrong_type[row.tensor] = why
    placement = LINEAR if backend is None else backend.placement
    for need in missing_ranges(model, placement, named.__contains__):
        if need.layer is None:
            found.missing[need.tensor] = need.rule
        elif want_weights:
            found.weights[need.tensor] = need.rule
    return found


def _wrong_group(row: QParams, parts: TensorParts) -> str:
    if row.role is Role.ACTIVATION:
        if parts.is_layer_parameter(row.tensor):
            return "listed as an activation, but is a parameter of a layer"
    elif not parts.is_constant(row.tensor):
        return "listed as a parameter, but is computed at run time"
    return ""


def _wrong_type(row: QParams, parts: TensorParts) -> str:
    tensor = parts.find(row.tensor)
    assert tensor is not None
    if tensor.dtype is not None and np.dtype(tensor.dtype).kind in "iub":
        return f"it contains {np.dtype(tensor.dtype)}, which is never quantized"
    if row.qtype.bits == 32 and not parts.is_constant(row.tensor):
        return "32 bits are for biases"
    try:
        row.check_shape(parts.shape(row.tensor) or tensor.shape)
    except QParamsError as error:
        return error.what.partition(": ")[2]
    return ""
