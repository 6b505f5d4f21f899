"""Quantizers behind an activation function moved in front of it, to what the layer makes.

Some targets run Relu inside the layer and want the range at the layer's own output. For a
quantizer Q with zero on its grid, as all have it,

    Q(relu(x)) = relu(Q(x))

Both are Q(x) for x >= 0, since Q is monotonic and keeps 0, and 0 below. The same holds for
Clip(x, 0, c) where Q reaches no further than c, or has c on its grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.edit import inputs_of, only_reader, producer, set_input, set_output, variable
from onnxq.graph import Model
from onnxq.graph.constants import is_constant, scalar
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class ReluRangeToConv(Pass):
    """Move quantizers behind Relu or Clip from 0 to the output of the layer in front."""

    name: ClassVar[str] = "relu-range-to-conv"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes(FAKE_QUANTIZE):
            function = producer(node.inputs[0], "Relu", "Clip")
            if function is None or is_constant(node.inputs[0]):
                continue
            made = function.inputs[0]
            if producer(made, *_LAYERS) is None:
                continue
            reason = _declined(model, node, function, params_of(node))
            if reason:
                trace.skip(node, reason)
                continue
            result = node.outputs[0]
            rounded = variable(model, f"{made.name}.q", like=made)
            set_input(node, 0, made)
            set_output(node, 0, rounded)
            set_input(function, 0, rounded)
            set_output(function, 0, result)
            trace.rewrote(node, f"moved before {function.op}")


def _declined(model: Model, node: gs.Node, function: gs.Node, params: QParams) -> str:
    """Why the quantizer must stay where it is; '' where it may move."""
    if node.owner is not function.owner:
        return f"it is in another body than its {function.op}"
    if not only_reader(function.outputs[0], node, model):
        return f"the output of {function.op} has other consumers"
    if not only_reader(function.inputs[0], function, model):
        return f"the input of {function.op} has other consumers"
    if function.op == "Relu":
        return ""
    low, high = (_bound(function, i, key) for i, key in ((1, "min"), (2, "max")))
    if low != 0:
        return "the lower bound of its Clip is not 0"
    if high is None or high < 0:
        return "its Clip has no known upper bound"
    reach = np.asarray(params.range[1], np.float64)
    kept = params.axis is None and float(params.fake(np.float32(high))) == np.float32(high)
    if not kept and np.any(reach > high):
        return f"its grid exceeds {high:.6g}, where Clip ends between two grid values"
    return ""


def _bound(node: gs.Node, index: int, attribute: str) -> float | None:
    """One end of a Clip: an attribute before opset 11."""
    if attribute in node.attrs:
        return float(node.attrs[attribute])
    value = scalar(inputs_of(node, 3)[index])
    return None if value is None else float(value)
