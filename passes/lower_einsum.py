"""Write an Einsum of two factors as the matrix product that it is.

Its letters are of four kinds: in both factors and the result (a batch), in both factors only
(summed over), in the first factor and the result (rows), in the second and the result (columns).
With one letter to sum over, one column, and one row or no batch,

    Einsum<"...">(A, B) = Transpose(MatMul(Transpose(A) [batch, rows, sum],
                                           Transpose(B) [batch, sum, columns]))

where a Transpose that changes nothing is left out. Runtimes have integer kernels for MatMul and
none for Einsum, and many converters do not know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import new_node, replace_by_node, variable
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class LowerEinsum(Pass):
    """Replace an Einsum of two factors by Transpose and MatMul."""

    name: ClassVar[str] = "lower-einsum"

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes("Einsum"):
            found = _product(node)
            if isinstance(found, str):
                trace.skip(node, found)
            else:
                _write(model, node, found)
                trace.rewrote(node, f"'{_text(node)}' is a matrix product")


@dataclass(frozen=True)
class _Product:
    """A product of matrices, in letters."""

    operands: tuple[gs.Tensor, gs.Tensor]
    written: tuple[str, str]
    """The axes of both factors as they are."""
    wanted: tuple[str, str]
    """The axes of both factors as MatMul reads them."""
    made: str
    """The axes of its result."""
    result: str
    """The axes of the Einsum's result."""


def _text(node: gs.Node) -> str:
    text = node.attrs.get("equation", "")
    return "".join((text.decode() if isinstance(text, bytes) else str(text)).split())


def _product(node: gs.Node) -> _Product | str:
    """The product that a node computes, or why it is none."""
    equation, arrow, result = _text(node).partition("->")
    factors = equation.split(",")
    if domain_of(node) or len(factors) != 2 or len(node.inputs) != 2:
        return "it does not have two factors"
    if "." in equation:
        return "its equation has an ellipsis"
    if not arrow:
        every = sorted(equation.replace(",", ""))
        result = "".join(letter for letter in every if every.count(letter) == 1)
    for letters in (*factors, result):
        if len(set(letters)) < len(letters):
            return "a letter appears twice in a factor"
    if any(not np.issubdtype(_kind(tensor), np.floating) for tensor in node.inputs):
        return "its factors are not known to be floats"
    first, second = factors
    tried = [(first, second, False), (second, first, True)]
    if is_constant(node.inputs[0]) and not is_constant(node.inputs[1]):
        tried.reverse()  # layers read their weight second
    for left, right, swapped in tried:
        if (found := _axes(left, right, result)) is not None:
            a, b = node.inputs[::-1] if swapped else node.inputs
            return _Product((a, b), (left, right), found[:2], found[2], result)
    return "it is no product of matrices"


def _kind(tensor: gs.Tensor) -> np.dtype[np.generic]:
    return np.dtype(tensor.dtype if tensor.dtype is not None else object)


def _axes(left: str, right: str, result: str) -> tuple[str, str, str] | None:
    """The axes of both factors and of the result of MatMul; None if it is none."""
    batch = [x for x in result if x in left and x in right]
    rows = [x for x in result if x in left and x not in right]
    columns = [x for x in result if x in right and x not in left]
    summed = [x for x in left if x in right and x not in result]
    if len(columns) != 1 or len(summed) != 1 or not rows or (batch and len(rows) != 1):
        return None
    if len(batch) + len(rows) + 1 != len(left) or len(batch) + 2 != len(right):
        return None  # a letter of one factor alone is summed over
    a, b = "".join((*batch, *rows, *summed)), "".join((*batch, *summed, *columns))
    return a, b, "".join((*batch, *rows, *columns))


def _write(model: Model, node: gs.Node, product: _Product) -> None:
    a, b = (
        _transposed(model, node, tensor, written, wanted)
        for tensor, written, wanted in zip(
            product.operands, product.written, product.wanted, strict=True
        )
    )
    if product.made == product.result:
        replace_by_node(node, "MatMul", [a, b], model)
        return
    out = node.outputs[0]
    made = variable(model, f"{out.name}.product", like=out)
    made.shape = None
    name = str(node.name or out.name)
    new_node(model, "MatMul", [a, b], [made], name=f"{name}.product", instead_of=node)
    perm = [product.made.index(letter) for letter in product.result]
    replace_by_node(node, "Transpose", [made], model, {"perm": perm})


def _transposed(
    model: Model, node: gs.Node, tensor: gs.Tensor, written: str, wanted: str
) -> gs.Tensor:
    if written == wanted:
        return tensor
    turned = variable(model, f"{tensor.name}.turned", like=tensor)
    perm = [written.index(letter) for letter in wanted]
    shape = tensor.shape
    turned.shape = None if shape is None else [shape[axis] for axis in perm]
    name = f"{node.name or node.outputs[0].name}.turn"
    new_node(
        model, "Transpose", [tensor], [turned], name=name, attrs={"perm": perm}, instead_of=node
    )
    return turned
