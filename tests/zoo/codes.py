"""Which products of an exported model multiply codes with codes."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import is_fake_quantize
from onnxq.graph import Model
from onnxq.operators.traits import moves

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum")
_SELECTS = ("Concat",)


def products_on_codes(model: Model, *, of_activations: bool = True) -> tuple[int, list[str]]:
    """The number of all products of a canonical model, and those with an operand in float.

    A product of constants alone is none: it is computed once. Without `of_activations`, products of
    two activations do not count.
    """
    found = [
        node
        for node in model.nodes(*PRODUCTS)
        if sum(map(_is_fixed, node.inputs[:2])) < 2
        and (of_activations or any(map(_is_fixed, node.inputs[:2])))
    ]
    return len(found), [n.name for n in found if not all(map(_is_on_codes, n.inputs[:2]))]


def _is_on_codes(tensor: gs.Tensor) -> bool:
    """Whether a quantizer rounds `tensor`, before nodes that only move its values."""
    if not tensor.inputs:
        return False
    (node,) = tensor.inputs
    if is_fake_quantize(node):
        return True
    if node.op in _SELECTS:
        return all(map(_is_on_codes, node.inputs))
    return moves(node) and _is_on_codes(node.inputs[0])


def _is_fixed(tensor: gs.Tensor) -> bool:
    if isinstance(tensor, gs.Constant):
        return True
    return bool(tensor.inputs) and all(map(_is_fixed, tensor.inputs[0].inputs))
