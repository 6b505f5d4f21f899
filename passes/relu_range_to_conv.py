"""Move quantizers after an activation function before it, to the output of the layer.

Some targets run Relu inside the layer and want the range at the layer's own output. Every
quantizer Q has zero on its grid, so

    Q(relu(x)) = relu(Q(x))

Both are Q(x) for x >= 0, since Q is monotonic and keeps 0, and 0 below. The same holds for
Clip(x, 0, c) if Q reaches no further than c, or has c on its grid.
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
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams


@dataclass(frozen=True)
class ReluRangeToConv(Pass):
    """Move quantizers after Relu or Clip from 0 to the output of the layer before it."""

    name: ClassVar[str] = "relu-range-to-conv"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes(FAKE_QUANTIZE):
            function = producer(node.inputs[0], "Relu", "Clip")
            if function is None or is_constant(node.inputs[0]):
                continue
            made = function.inputs[0]
            if producer(made, *LINEAR_OPS) is None:
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
    """Why the quantizer must stay where it is; '' if it may move."""
    if node.owner is not function.owner:
        return f"it is in another body than its {function.op}"
    if not only_reader(function.outputs[0], node, model):
        return f"the output of {function.op} has other consumers"
    if not only_reader(function.inputs[0], function, model):
        return f"the input of {function.op} has other consumers"
    if function.op == "Relu":
        return ""
    _, low, high = inputs_of(function, 3)  # attributes before opset 11
    least, most = function.attrs.get("min", scalar(low)), function.attrs.get("max", scalar(high))
    if least != 0:
        return "the lower bound of its Clip is not 0"
    if most is None or most < 0:
        return "its Clip has no known upper bound"
    kept = params.axis is None and float(params.fake(np.float32(most))) == np.float32(most)
    if not kept and np.any(params.range[1] > most):
        return f"its grid exceeds {most:.6g}, where Clip ends between two grid values"
    return ""
