"""Round biases to the grid of their table rows, that of their int32 codes.

    b  ->  round(b / (sx * sw)) * (sx * sw)

Integer operators add biases as codes, so a float bias moves by up to half a step of the sum. With
the rounded values, the graph computes what such operators compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.analysis.bias_readers import BiasUse, bias_uses
from onnxq.edit import constant, set_input
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array


@dataclass(frozen=True)
class RoundBias(Pass):
    """Replace each bias that has a row in the table by the values of its codes."""

    name: ClassVar[str] = "round-bias"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("quantize-bias",)

    def run(self, model: Model, trace: Trace) -> None:
        for use in bias_uses(model):
            where = f"'{use.row.tensor}'"
            rounded = use.row.fake(use.value).astype(use.value.dtype)
            if np.array_equal(rounded, use.value):
                trace.skip(where, "it is on its grid")
                continue
            moved = np.abs(rounded.astype(np.float64) - use.value).max()
            size = np.abs(use.value).max()
            _replace(model, use, rounded)
            trace.rewrote(where, f"off by up to {100 * moved / size:.2g} % of its largest value")


def _replace(model: Model, use: BiasUse, rounded: Array) -> None:
    """Let the consumers that the row applies to read `rounded`, and the row name it."""
    made = constant(model, use.row.tensor, rounded)
    for node, index in use.uses:
        set_input(node, index, made)
    if not use.tensor.outputs and not model.is_output(use.tensor):
        made.name, use.tensor.name = use.tensor.name, made.name
        return
    rows = model.qparams.rows
    at = next(i for i, row in enumerate(rows) if row is use.row)
    rows[at] = use.row.with_(tensor=made.name)
