"""The op kind, in the sense of `onnxq.operators.placement`, of a node of an ONNX graph.

A kind is the operator's name, unless the operands decide: a MatMul or Gemm with a constant
is `Linear`, without one `MatMul`; a ConvTranspose whose kernels are a single 1 only spreads values
apart, like `Pad`; a Gather from a constant of real numbers is `Embedding`. GlobalMaxPool is
`MaxPool`. A Pad with other numbers than zeros and a Dropout that drops values have no kind.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.graph import domain_of
from onnxq.graph.constants import array, is_constant
from onnxq.operators.placement import is_op_kind
from onnxq.operators.traits import WEIGHTED, moves

_NOT_NAMED = ("Linear", "Embedding")
"""Kinds that are not the name of an operator."""


def kind_of(node: gs.Node) -> str | None:
    """The op kind of `node`; None for operators that no rule names."""
    if domain_of(node):
        return None
    if node.op in ("MatMul", "Gemm"):
        return "Linear" if is_constant(node.inputs[1]) else "MatMul"
    if node.op == "Gather":
        table = array(node.inputs[0])
        if table is None:
            return "Gather"
        return "Embedding" if np.issubdtype(table.dtype, np.floating) else None
    if node.op == "GlobalMaxPool":
        return "MaxPool"
    if node.op in ("Dropout", "Pad") and not moves(node):
        return None
    if node.op == "ConvTranspose" and _inserts_zeros(node):
        return "Pad"
    return node.op if is_op_kind(node.op) and node.op not in _NOT_NAMED else None


def _inserts_zeros(node: gs.Node) -> bool:
    """Whether each channel has its own kernel, which is a single 1."""
    weight = node.inputs[1]
    shape = weight.shape
    if not isinstance(weight, gs.Constant) or not shape or any(n != 1 for n in shape[1:]):
        return False
    values = array(weight)
    own = int(node.attrs.get("group", 1)) == shape[0]
    return own and values is not None and len(node.inputs) < 3 and bool(np.all(values == 1))


def weight_of(node: gs.Node) -> gs.Tensor | None:
    """The constant that `node` multiplies with or looks up; None if there is none."""
    kind = kind_of(node)
    if kind == "Embedding":
        return node.inputs[0]
    if kind in WEIGHTED and len(node.inputs) > 1 and is_constant(node.inputs[1]):
        return node.inputs[1]
    return None


def is_bias_of(node: gs.Node) -> gs.Node | None:
    """The MatMul to which `node` adds the bias: ONNX writes a layer of rank 3 as MatMul and Add."""
    if node.op != "Add" or domain_of(node) or len(node.inputs) != 2:
        return None
    for made, added in (node.inputs, reversed(node.inputs)):
        layer = made.inputs[0] if made.inputs else None
        if layer is None or layer.op != "MatMul" or kind_of(layer) != "Linear":
            continue
        bias = array(added)
        if bias is not None and bias.ndim <= 1 and len(made.outputs) == 1:
            return layer
    return None


def gelu_of(erf: gs.Node) -> tuple[gs.Tensor, list[gs.Node]] | None:
    """The input and the nodes of x * (1 + erf(x / sqrt 2)) / 2 around an Erf, the last one last.

    This is how exporters write Gelu for opsets that lack the operator.
    """
    divided = erf.inputs[0].inputs[0] if erf.inputs[0].inputs else None
    if divided is None or divided.op not in ("Div", "Mul") or not is_constant(divided.inputs[1]):
        return None
    x = divided.inputs[0]
    nodes = [divided, erf]
    halved = multiplied = False
    while not (halved and multiplied):
        out = nodes[-1].outputs[0]
        consumer = out.outputs[0] if len(out.outputs) == 1 else None
        if consumer is None or len(consumer.inputs) != 2 or domain_of(consumer):
            return None
        (other,) = [t for t in consumer.inputs if t is not out] or [out]
        if consumer.op == "Mul" and is_constant(other):
            halved = True
        elif consumer.op == "Mul" and not multiplied:
            multiplied = True
            if other is not x:  # x / 2, halved before
                half = other.inputs[0] if other.inputs else None
                if half is None or half.op != "Mul" or half.inputs[0] is not x:
                    return None
                halved = True
                nodes.append(half)
        elif not (consumer.op == "Add" and is_constant(other) and len(nodes) == 2):
            return None
        nodes.append(consumer)
    return x, nodes
