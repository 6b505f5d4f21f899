"""Fold the chain of per-channel constants after a linear layer into its weight and bias.

After a layer every Mul, Div, Add, Sub with a constant per channel and every BatchNormalization
is x * gain + shift; the whole chain is one such step, composed in float64. This includes the
training form of quantization-aware training,

    Conv(x, FakeQuantize(W * f)) -> Div f -> Add b -> BatchNormalization,  f = gamma/sqrt(var + eps)

whose gain is 1 up to the rounding of f. A gain within 4 ulp of 1 in float32 is taken as 1, so
that the trained scales stay bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import describe, only_reader, op_name
from onnxq.folding.affine import ELEMENTWISE, IDENTITY, Affine, CannotFold, batch_norm, elementwise
from onnxq.folding.fold_into_layer import Folding
from onnxq.folding.linear import LinearLayer, check_channel_axis, other_use, read_layer
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.pass_ import Pass, Trace

_CLOSE_TO_ONE = 4 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class FoldAffine(Pass):
    """Fold Mul, Div, Add, Sub with constants and BatchNormalization after a layer into it."""

    name: ClassVar[str] = "fold-affine"
    exact: ClassVar[bool] = True

    flip: bool = True

    def run(self, model: Model, trace: Trace) -> None:
        folding = Folding(model, trace, self.flip)
        for node in model.nodes(*LINEAR_OPS):
            first = _affine_reader(node.outputs[0])
            if first is None:
                continue
            if model.opset < 7:
                trace.skip(first, f"opset {model.opset} broadcasts by other rules: raise it to 7")
                continue
            try:
                layer = read_layer(node)
            except CannotFold as reason:
                trace.skip(first, str(reason))
                continue
            chain, step = _chain(layer, model, trace)
            if not chain or _is_bias(layer, chain):
                continue
            labels = [describe(link) for link in chain]  # folding takes the nodes apart
            try:
                folding.behind(layer, chain, _snapped(step))
            except CannotFold as reason:
                trace.skip(chain[0], str(reason))
            else:
                for label in labels:
                    trace.rewrote(label, f"into {describe(node)}")
        folding.finish()


def _affine_reader(x: gs.Tensor) -> gs.Node | None:
    """The first node that reads `x` and may be an affine step on it."""
    for node in x.outputs:
        op = op_name(node)
        if op == "BatchNormalization" and node.inputs[0] is x:
            return node
        if op in ELEMENTWISE and any(is_constant(t) for t in node.inputs):
            return node
    return None


def _chain(layer: LinearLayer, model: Model, trace: Trace) -> tuple[list[gs.Node], Affine]:
    """The affine nodes after the layer, as long as each is read only by the next."""
    x, step = layer.node.outputs[0], IDENTITY
    chain: list[gs.Node] = []
    while (link := _affine_reader(x)) is not None:
        try:
            if not only_reader(x, link, model):
                raise CannotFold(f"'{x.name}', which it reads, {other_use(x, model)}")
            if link.op == "BatchNormalization":
                check_channel_axis(layer, link)
                part: Affine | None = batch_norm(link)
            else:
                part = elementwise(link, x, layer.layout)
            assert part is not None  # _affine_reader saw a constant
            part.vectors(layer.layout.channels)
        except CannotFold as reason:
            trace.skip(link, str(reason))
            break
        chain.append(link)
        x, step = link.outputs[0], step.then(part)
    return chain, step


def _is_bias(layer: LinearLayer, chain: list[gs.Node]) -> bool:
    """Whether the chain is one Add after a MatMul, which has no other place for a bias."""
    return layer.node.op == "MatMul" and len(chain) == 1 and chain[0].op == "Add"


def _snapped(step: Affine) -> Affine:
    gain = np.where(np.abs(np.subtract(step.gain, 1.0)) <= _CLOSE_TO_ONE, 1.0, step.gain)
    return Affine(gain if gain.ndim else float(gain), step.shift)
