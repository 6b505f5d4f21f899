"""An integer operator as its float twin between quantizers.

    codes -> QLinearConv -> codes     codes -> DQ -> Conv -> Q -> codes

Exact except for rounding: the integer operator scales a sum once, the float operator scales every
operand, so a result very close to a tie may take the neighbouring code. An int32 bias is
dequantized with the scale of the products, sx * sw. If channels come last, the twin is between two
Transpose nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.dialects.code_nodes import CodeGrid, CodeNodes, channel_permutations, grid_of
from onnxq.dialects.node_rewrite import Declined, invalid
from onnxq.edit import constant, inputs_of, new_node, remove, variable
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import array
from onnxq.operators.integer_operators import QOperator, is_channels_last
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, add_metadata, metadata

_PRODUCTS = ("Conv", "Gemm", "MatMul", "Mul")
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
_AXES = {("Conv", 1): 0, ("MatMul", 0): -2, ("MatMul", 1): -1, ("Gemm", 1): 1}
"""The axis that scales may run along, by float operator and number of the operand."""

_Operand = tuple[gs.Tensor, CodeGrid]


def lower(node: gs.Node, operator: QOperator, make: CodeNodes) -> str:
    """Replace one integer operator and return by what. Nothing is changed if it raises."""
    count = len(node.inputs)
    needed = max(operator.operands[-1] + 2, 0 if operator.optional_result else operator.result + 1)
    if count < needed or not node.outputs:
        raise invalid(f"it has {count} inputs, {operator.name} needs more")
    given = inputs_of(node, max(count, 9))
    if operator.needs_zero_points:
        _check_zero_points(operator, given)
    positions = enumerate(operator.positions(count))
    operands = [_operand(node, operator, given, at, number) for number, at in positions]
    for codes, grid in operands:
        grid.checked(codes)
        if operator.twin in _PRODUCTS:
            grid.check_reach(codes)
    grids = [grid for _, grid in operands]
    result: CodeGrid | None = None
    if given[operator.result] is not None or not operator.optional_result:
        kind = grids[0].zero_point.dtype
        result = grid_of(node, operator.result, None, None, kind).checked(node.outputs[0])
    if not operator.needs_zero_points:
        _check_one_type(operator, grids if result is None else [*grids, result])
    if operator.twin in _PRODUCTS:
        _check_factor(node, operator.twin, grids, result)
    perms = _permutations(node, operator, given, make)
    bias = None if operator.bias is None else given[operator.bias]
    added = None if bias is None else _bias(node, bias, grids, make.model)
    _replace(node, operator, make, operands, added, result, perms)
    return operator.twin


def _check_factor(
    node: gs.Node, twin: str, operands: list[CodeGrid], result: CodeGrid | None
) -> None:
    """Decline if float32 cannot represent the factor of the sums, sx * sw / sy.

    The integer kernel then multiplies by 0 or infinity, the float operator never meets the factor.
    """
    alpha = abs(float(node.attrs.get("alpha", 1.0))) if twin == "Gemm" else 1.0
    least, most = (
        alpha * float(end(operands[0].scale)) * float(end(operands[1].scale))
        for end in (np.min, np.max)
    )
    if least < _SMALLEST:
        raise Declined(f"the product of its scales, {least:.3g}, underflows float32")
    most = max(most, most / (1.0 if result is None else float(result.scale.min())))
    if most > _LARGEST:
        raise Declined(f"the factor of its sums, {most:.3g}, overflows float32")


def _check_zero_points(operator: QOperator, given: list[gs.Tensor | None]) -> None:
    """Raise if a zero point, which specifies the type of the codes, is missing."""
    wanted = [at + 2 for at in operator.operands]
    if given[operator.result] is not None:
        wanted.append(operator.result + 1)
    for at in wanted:
        if given[at] is None:
            raise invalid(f"input {at} of {operator.name}, a zero point, is missing")


def _check_one_type(operator: QOperator, grids: list[CodeGrid]) -> None:
    """Raise if operands or result of an operator with one type have several."""
    kinds = sorted({str(grid.zero_point.dtype) for grid in grids})
    if len(kinds) > 1:
        raise invalid(f"it has {' and '.join(kinds)} codes, but {operator.name} needs one type")


def _operand(
    node: gs.Node, operator: QOperator, given: list[gs.Tensor | None], at: int, number: int
) -> _Operand:
    codes = given[at]
    if codes is None:
        raise invalid(f"input {at} of {operator.name} is missing")
    axis = _AXES.get((operator.twin, number))
    if operator.twin == "Gemm" and number == 1 and node.attrs.get("transB", 0):
        axis = 0
    if axis is not None and axis < 0 and codes.shape is not None:
        axis += len(codes.shape)
    return codes, grid_of(node, at + 1, codes, axis)


def _permutations(
    node: gs.Node, operator: QOperator, given: list[gs.Tensor | None], make: CodeNodes
) -> tuple[list[int], list[int]] | None:
    """The permutations to channels first and back, if the node has its channels last."""
    if not operator.pools or not is_channels_last(domain_of(node), node.attrs):
        return None
    shapes = [None if t is None else t.shape for t in given[:4]]
    rank = len(node.attrs.get("kernel_shape", ())) + 2
    if rank == 2 and operator.twin == "Conv" and shapes[3] is not None:
        rank = len(shapes[3])
    elif rank == 2 and shapes[0] is not None:
        rank = len(shapes[0])
    elif rank == 2:
        rank = make.ranks.get(id(given[0]), 2)
    if rank == 2:
        raise Declined("its channels are last, and its rank is unknown")
    make.ranks[id(node.outputs[0])] = rank
    return channel_permutations(rank)


def _bias(node: gs.Node, tensor: gs.Tensor, grids: list[CodeGrid], model: Model) -> _Operand:
    """The bias (a new constant if its shape must change) and its grid."""
    left, right = grids[:2]
    alpha = np.float32(node.attrs.get("alpha", 1.0))
    scale = (alpha * left.scale) * right.scale
    if left.axis is not None:
        raise Declined("its bias has no scale of its own: the first operand has one per row")
    axis = None if right.axis is None else 0
    grid = CodeGrid(scale, np.zeros(scale.shape, np.int32), axis)
    if not np.all(scale >= _SMALLEST):
        raise Declined("input scale * weight scale, the step of its bias, underflows float32")
    stored = array(tensor)
    if tensor.dtype not in (None, np.int32) or (stored is not None and stored.dtype != np.int32):
        raise invalid(f"its bias '{tensor.name}' is {np.dtype(tensor.dtype)}, not int32")
    shape = tensor.shape if stored is None else stored.shape
    if axis is None or shape is None or len(shape) == 1:
        return tensor, grid
    if stored is None or stored.size != scale.size:
        raise Declined(f"its bias '{tensor.name}' has shape {list(shape)}, not one per channel")
    return constant(model, tensor.name, stored.reshape(-1)), grid


def _replace(
    node: gs.Node,
    operator: QOperator,
    make: CodeNodes,
    operands: list[_Operand],
    bias: _Operand | None,
    result: CodeGrid | None,
    perms: tuple[list[int], list[int]] | None,
) -> None:
    model, graph, out = make.model, node.owner, node.outputs[0]
    name = node.name or f"{out.name}.{operator.twin}"
    attrs = {k: v for k, v in node.attrs.items() if k not in (*operator.drops, "channels_last")}
    for flag in ("transA", "transB"):
        if flag in attrs:  # for QGemm any number but 0 means yes, for Gemm only 1 is valid
            attrs[flag] = int(bool(attrs[flag]))
    plain = [node.inputs[i] for i in operator.plain]
    positions, stated = operator.positions(len(node.inputs)), metadata(node)
    remove(node, model)
    inputs = plain + [make.real(codes, grid) for codes, grid in operands]
    for at, real in zip(positions, inputs[len(plain) :], strict=True):
        # Codes that a stored weight does not use, as 'to-qoperator' records them.
        bounds = {k: stated[f"{k}.{at}"] for k in (QUANT_MIN, QUANT_MAX) if f"{k}.{at}" in stated}
        if bounds:
            add_metadata(real.inputs[0], bounds)
    made = out if result is None else make.source(out, result, graph)
    add = partial(new_node, model, graph=graph)
    if perms is not None:
        first, last = (
            variable(model, f"{tensor.name}.channels_first", like=None)
            for tensor in (inputs[0], made)
        )
        there, back = ({"perm": perm} for perm in perms)
        add("Transpose", [inputs[0]], [first], name=f"{name}.to_channels_first", attrs=there)
        add("Transpose", [last], [made], name=f"{name}.to_channels_last", attrs=back)
        inputs[0], made = first, last
    if bias is not None:
        inputs.append(make.real(*bias))
    if operator.twin == "Softmax":
        opset = int(node.attrs.get("opset", 13))
        _softmax(model, add, inputs[0], made, name, int(attrs.get("axis", -1)), opset)
        return
    if operator.twin == "ReduceMean" and model.opset >= 18 and "axes" in attrs:
        axes = np.asarray(attrs.pop("axes"), np.int64)
        inputs.append(constant(model, f"{name}.axes", axes))
    add(operator.twin, inputs, [made], name=name, attrs=attrs)


def _softmax(
    model: Model,
    add: Callable[..., gs.Node],
    x: gs.Tensor,
    out: gs.Tensor,
    name: str,
    axis: int,
    opset: int,
) -> None:
    """Softmax as in the opset that the operator states.

    Before opset 13 everything from the axis on was one row. Newer models write that with Flatten.
    """
    if opset >= 13:
        model.require_opset(13, "Softmax along one axis")
    last = axis == -1 or (x.shape is not None and axis == len(x.shape) - 1)
    if opset >= 13 or last or model.opset < 13:
        add("Softmax", [x], [out], name=name, attrs={"axis": axis})
        return
    flat, rows, shape = (
        variable(model, f"{name}.{part}", like=None) for part in ("flat", "rows", "shape")
    )
    add("Flatten", [x], [flat], name=f"{name}.flatten", attrs={"axis": axis})
    add("Softmax", [flat], [rows], name=name, attrs={"axis": 1})
    add("Shape", [x], [shape], name=f"{name}.shape")
    add("Reshape", [rows, shape], [out], name=f"{name}.reshape")
