"""Fold BatchNormalization into the linear layer before it, or else after it.

    gain = gamma / sqrt(var + eps)        shift = beta - mean * gain

A layer before it absorbs both per output channel (`onnxq.folding.linear`), exactly for every
padding and also if its weight is quantized. A layer after it absorbs them per input channel, which
is exact only without zero padding and impossible for the scales of a quantized weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.edit import describe, only_reader, op_name, producer
from onnxq.folding.affine import ELEMENTWISE, CannotFold, batch_norm, elementwise
from onnxq.folding.fold_into_layer import Folding
from onnxq.folding.linear import bias_add, check_channel_axis, other_use, read_layer
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Fold BatchNormalization into Conv, ConvTranspose, Gemm or MatMul; weight codes stay."""

    name: ClassVar[str] = "fold-batch-norm"
    exact: ClassVar[bool] = True

    flip: bool = True

    def run(self, model: Model, trace: Trace) -> None:
        nodes = model.nodes("BatchNormalization")
        if model.opset < 7:
            for node in nodes:
                trace.skip(node, f"opset {model.opset} broadcasts by other rules: raise it to 7")
            return
        folding = Folding(model, trace, self.flip)
        left: list[tuple[gs.Node, str]] = []
        for node in nodes:
            label = describe(node)  # folding takes the node apart
            try:
                layer = _fold_into_front(node, folding)
            except CannotFold as reason:
                left.append((node, str(reason)))
            else:
                trace.rewrote(label, f"into {describe(layer)}")
        declined: list[tuple[gs.Node, str]] = []
        # From the back: if one BatchNormalization feeds another, the second goes first.
        for node, front_reason in reversed(left):
            label = describe(node)
            try:
                layer = _fold_into_back(node, folding, tried_front=bool(front_reason))
            except CannotFold as reason:
                reasons = [front_reason, str(reason)]
                declined.append((node, "; ".join(filter(None, reasons)) or _NO_LAYER))
            else:
                trace.rewrote(label, f"into {describe(layer)} after it")
        for node, why in reversed(declined):
            trace.skip(node, why)
        folding.finish()


_NO_LAYER = f"neither directly before nor directly after it is a {', '.join(LINEAR_OPS)}"


def _fold_into_front(node: gs.Node, folding: Folding) -> gs.Node:
    """Fold into the layer that produces the input; an empty reason means there is none."""
    model = folding.model
    x = node.inputs[0]
    front, chain = producer(x, "Add", *LINEAR_OPS), [node]
    if front is not None and front.op == "Add":
        # The bias of a MatMul is an Add after it.
        chain = [front, node]
        products = (producer(t, "MatMul") for t in front.inputs)
        front = next((p for p in products if p is not None and bias_add(p, model) is front), None)
    if front is None:
        raise CannotFold
    if not only_reader(x, node, model):
        raise CannotFold(f"'{x.name}', produced by {describe(front)}, {other_use(x, model)}")
    step = batch_norm(node)
    layer = read_layer(front)
    check_channel_axis(layer, node)
    if len(chain) == 2:
        first = elementwise(chain[0], front.outputs[0], layer.layout)
        assert first is not None  # bias_add saw a constant
        step = first.then(step)
    folding.behind(layer, chain, step)
    return front


def _fold_into_back(node: gs.Node, folding: Folding, tried_front: bool) -> gs.Node:
    """Fold into the layer that consumes the output; an empty reason means there is none."""
    y = node.outputs[0]
    back: gs.Node | None = y.outputs[0] if y.outputs else None
    if back is None or op_name(back) not in LINEAR_OPS or back.inputs[0] is not y:
        raise CannotFold
    if not only_reader(y, node=back, model=folding.model):
        raise CannotFold(f"'{y.name}', read by {describe(back)}, {other_use(y, folding.model)}")
    layer = None if tried_front else _layer_before_chain(node, folding.model)
    if layer is not None:
        raise CannotFold(
            f"'fold-affine' folds it into {describe(layer)}, together with the nodes in between"
        )
    if back.op == "ConvTranspose":
        raise CannotFold(f"at the border of {describe(back)} after it fewer shifts add up")
    if back.op == "Gemm" and back.attrs.get("transA", 0):
        raise CannotFold(f"{describe(back)} after it sums over axis 0, not over channels")
    if back.op == "MatMul":
        shape = next((t.shape for t in (y, node.inputs[0]) if t.shape is not None), None)
        if shape is None or len(shape) != 2:
            what = "unknown" if shape is None else str(len(shape))
            raise CannotFold(
                f"the rank of '{y.name}' is {what}, and {describe(back)} after it sums over "
                "channels only for rank 2"
            )
    folding.before(read_layer(back), node, batch_norm(node))
    return back


def _layer_before_chain(node: gs.Node, model: Model) -> gs.Node | None:
    """The layer whose chain of arithmetic with constants ends at `node`."""
    x, reader = node.inputs[0], node
    while only_reader(x, reader, model):
        front = producer(x, *ELEMENTWISE, *LINEAR_OPS)
        if front is None or front.op in LINEAR_OPS:
            return front
        operands = [t for t in front.inputs if not is_constant(t)]
        if len(operands) != 1:
            return None
        x, reader = operands[0], front
    return None
