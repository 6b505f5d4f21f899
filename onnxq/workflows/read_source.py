"""Reads a quantized model of any dialect, or a float model and its encodings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from onnxq.backend import Backend
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.dialects.function_inlining import quantizing_functions
from onnxq.dialects.quantizing_operators import check_readable
from onnxq.errors import BackendError, OptionError
from onnxq.graph import Model
from onnxq.pass_ import Trace
from onnxq.pipeline import Observer
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from onnxq.reading import canonical, readable_form
from onnxq.workflows.encodings import Encodings, Weights, with_encodings


@dataclass(frozen=True)
class Source:
    """A model that was read."""

    model: Model
    """The canonical form."""
    traces: tuple[Trace, ...]
    """The traces of the readers."""
    notes: list[str]


def read(
    model: Model,
    *observers: Observer,
    encodings: Encodings | Iterable[Encodings] = (),
    backend: Backend | None = None,
    allow_missing: bool = False,
    strict: bool = False,
    weights: Weights | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Source:
    """Read `model` and the quantization in `encodings` into the canonical form.

    A model without readable quantizers is refused.
    """
    beside = [encodings] if isinstance(encodings, str | Path | QParamTable) else list(encodings)
    given = readable_form(model)
    check_readable(given)
    if strict and not beside:
        raise OptionError(
            "strict refuses encodings that leave tensors out, and there are none",
            fix="give encodings",
        )
    if weights is not None and not beside:
        raise OptionError(
            "weights are quantized if encodings omit them, but no encodings were given",
            fix="give encodings, or run the pass 'quantize-weights'",
        )
    if allow_missing and not beside:
        raise OptionError(
            "allow_missing is for encodings that do not match the model, and there are none",
            fix="give encodings (--encodings FILE), or leave it out",
        )
    notes = [*given.upgrades]
    progress("reading quantizers")
    found, traces = canonical(given, *observers)
    if beside:
        progress("reading encodings")
        found, told = with_encodings(
            found,
            beside,
            backend=backend,
            allow_missing=allow_missing,
            strict=strict,
            weights=weights,
        )
        notes += told
    if not found.nodes(*QUANTIZERS):
        raise unquantized(found, traces)
    return Source(found, traces, notes + unread(found, traces))


def unread(model: Model, traces: Iterable[Trace]) -> list[str]:
    """Notes on quantization that no reader could read, which stays in the written files."""
    left = [f"{s.where}: {s.reason}" for t in traces for s in t.skips]
    left += [
        f"function '{f.domain}::{f.name}': it quantizes and cannot be inlined: its opset is not "
        "that of the model"
        for f in quantizing_functions(model)
    ]
    return [f"left as it is: {what}" for what in dict.fromkeys(left)]


def unquantized(model: Model, traces: tuple[Trace, ...]) -> BackendError:
    """The error for a model without quantizers, with the next step."""
    skips = [s for t in traces for s in t.skips]
    if model.qparams.of(Role.ACTIVATION, Role.WEIGHT) or model.qparams.logarithmic:
        return BackendError(
            "the model carries a quantization table, but no quantizers",
            fix="put them in first: onnxq run MODEL -p apply-qparams -o QUANTIZED.onnx",
        )
    why = f" ({skips[0].where}: {skips[0].reason})" if skips else ""
    return BackendError(
        f"the model has no quantizers that onnxq can read{why}",
        fix="quantize a float model with 'onnxq quantize', or give the ranges of this one with "
        "--encodings FILE; 'onnxq inspect' lists what was found",
    )
