"""An integer operator as its float twin between quantizers.

    codes -> QLinearConv -> codes     codes -> DQ -> Conv -> Q -> codes

Exact but for rounding: the integer operator scales a sum once where the float operator scales
every operand, so a result within a hair of a tie may take the neighbouring code. An int32 bias is
dequantized with the scale of the products, sx * sw. Where channels come last the twin is
between two Transpose nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.dialects.code_nodes import CodeGrid, CodeNodes, grid_of
from onnxq.dialects.node_rewrite import Declined
from onnxq.edit import constant, inputs_of, new_node, remove, variable
from onnxq.errors import QParamsError
from onnxq.graph import domain_of
from onnxq.graph.constants import array
from onnxq.operators.integer_operators import QOperator, is_channels_last
from onnxq.quant.qparams import Array
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, add_metadata, metadata

_PRODUCTS = ("Conv", "Gemm", "MatMul", "Mul")
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def lower(node: gs.Node, operator: QOperator, make: CodeNodes) -> str:
    """Replace one integer operator; says by what. Nothing is changed where it raises."""
    count = len(node.inputs)
    needed = operator.operands[-1] + 2
    if operator.result is not None and not operator.optional_result:
        needed = max(needed, operator.result + 1)
    if count < needed or not node.outputs:
        raise QParamsError(
            f"it has {count} inputs, {operator.name} needs more",
            fix="the file is not a valid ONNX model: export it again",
        )
    given = inputs_of(node, max(count, 9))
    if operator.needs_zero_points:
        _check_zero_points(operator, given)
    operands = [
        _operand(node, operator, _codes(given, at, operator), at, i)
        for i, at in enumerate(operator.positions(count))
    ]
    for codes, grid in operands:
        grid.checked(codes)
        if operator.twin in _PRODUCTS:
            grid.check_reach(codes)
    out = node.outputs[0]
    result: CodeGrid | None = None
    if operator.result is not None and not (
        operator.optional_result and given[operator.result] is None
    ):
        kind = operands[0][1].zero_point.dtype
        result = grid_of(node, operator.result, None, None, kind).checked(out)
    if not operator.needs_zero_points:
        _check_one_type(operator, [g for _, g in operands] + ([] if result is None else [result]))
    if operator.twin in _PRODUCTS:
        _check_factor(node, operator.twin, [g for _, g in operands], result)
    perms = _permutations(node, operator, given, make)
    bias = None
    if operator.bias is not None and given[operator.bias] is not None:
        bias = _bias(node, given[operator.bias], [g for _, g in operands])
    _replace(node, operator, make, operands, bias, result, perms)
    return operator.twin


def _check_factor(
    node: gs.Node, twin: str, operands: list[CodeGrid], result: CodeGrid | None
) -> None:
    """Decline where float32 does not hold the factor of the sums, sx * sw / sy.

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
    """Raise where a zero point, which tells the type of the codes, is missing."""
    wanted = [at + 2 for at in operator.operands]
    if operator.result is not None and given[operator.result] is not None:
        wanted.append(operator.result + 1)
    for at in wanted:
        if given[at] is None:
            raise QParamsError(
                f"input {at} of {operator.name}, a zero point, is missing",
                fix="the file is not a valid ONNX model: export it again",
            )


def _check_one_type(operator: QOperator, grids: list[CodeGrid]) -> None:
    """Raise where operands or result of an operator with one type have several."""
    kinds = sorted({str(grid.zero_point.dtype) for grid in grids})
    if len(kinds) > 1:
        raise QParamsError(
            f"it has {' and '.join(kinds)} codes, but {operator.name} needs one type",
            fix="the file is not a valid ONNX model: export it again",
        )


def _codes(given: list[gs.Tensor | None], at: int, operator: QOperator) -> gs.Tensor:
    codes = given[at]
    if codes is None:
        raise QParamsError(
            f"input {at} of {operator.name} is missing",
            fix="the file is not a valid ONNX model: export it again",
        )
    return codes


def _operand(
    node: gs.Node, operator: QOperator, codes: gs.Tensor, at: int, index: int
) -> tuple[gs.Tensor, CodeGrid]:
    axis = _axis(node, operator, index)
    if axis is not None and axis < 0 and codes.shape is not None:
        axis += len(codes.shape)
    return codes, grid_of(node, at + 1, codes, axis)


def _axis(node: gs.Node, operator: QOperator, index: int) -> int | None:
    """The axis that scales of operand `index` may run along; from the end where negative."""
    if operator.twin == "Conv":
        return 0 if index == 1 else None
    if operator.twin == "MatMul":
        return (-2, -1)[index]
    if operator.twin == "Gemm" and index == 1:
        return 0 if node.attrs.get("transB", 0) else 1
    return None


def _permutations(
    node: gs.Node, operator: QOperator, given: list[gs.Tensor | None], make: CodeNodes
) -> tuple[list[int], list[int]] | None:
    """To channels second and back, where the node has its channels last."""
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
    inner = range(1, rank - 1)
    return [0, rank - 1, *inner], [0, *(i + 1 for i in inner), 1]


def _bias(
    node: gs.Node, tensor: gs.Tensor, grids: list[CodeGrid]
) -> tuple[gs.Tensor | Array, CodeGrid, str]:
    """The bias (new codes where its shape must change), its grid and its name."""
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
        raise QParamsError(
            f"its bias '{tensor.name}' is {np.dtype(tensor.dtype)}, not int32",
            fix="the file is not a valid ONNX model: export it again",
        )
    shape = tensor.shape if stored is None else stored.shape
    if axis is None or shape is None or len(shape) == 1:
        return tensor, grid, tensor.name
    if stored is None or stored.size != scale.size:
        raise Declined(f"its bias '{tensor.name}' has shape {list(shape)}, not one per channel")
    return stored.reshape(-1), grid, tensor.name


def _replace(
    node: gs.Node,
    operator: QOperator,
    make: CodeNodes,
    operands: list[tuple[gs.Tensor, CodeGrid]],
    bias: tuple[gs.Tensor | Array, CodeGrid, str] | None,
    result: CodeGrid | None,
    perms: tuple[list[int], list[int]] | None,
) -> None:
    model, graph, out = make.model, node.owner, node.outputs[0]
    name, domain = node.name or f"{out.name}.{operator.twin}", domain_of(node)
    attrs = {k: v for k, v in node.attrs.items() if k not in (*operator.drops, "channels_last")}
    for flag in ("transA", "transB"):
        if flag in attrs:  # any number but 0 means yes, which Gemm does not say of itself
            attrs[flag] = int(bool(attrs[flag]))
    plain = [node.inputs[i] for i in operator.plain]
    positions, stated = operator.positions(len(node.inputs)), metadata(node)
    remove(node, model)
    inputs = plain + [make.real(codes, grid) for codes, grid in operands]
    for at, real in zip(positions, inputs[len(plain) :], strict=True):
        # Codes that a stored weight does not use, as 'to-qoperator' writes them down.
        bounds = {k: stated[f"{k}.{at}"] for k in (QUANT_MIN, QUANT_MAX) if f"{k}.{at}" in stated}
        if bounds:
            add_metadata(real.inputs[0], bounds)
    made = out if result is None else make.source(out, result, graph)
    if perms is not None:
        inputs[0] = _transposed(make, inputs[0], perms[0], f"{name}.to_channels_first", graph)
        inner = variable(model, f"{made.name}.channels_first", like=None)
        _node(make, "Transpose", [inner], made, f"{name}.to_channels_last", graph, perm=perms[1])
        made = inner
    if bias is not None:
        codes, grid, label = bias
        tensor = constant(model, label, codes) if isinstance(codes, np.ndarray) else codes
        inputs.append(make.real(tensor, grid))
    if operator.twin == "Softmax":
        _softmax(make, inputs[0], made, name, graph, attrs, int(node.attrs.get("opset", 13)))
        return
    if operator.twin == "ReduceMean" and model.opset >= 18 and "axes" in attrs:
        axes = np.asarray(attrs.pop("axes"), np.int64)
        inputs.append(constant(model, f"{name}.axes", axes))
    assert domain or operator.standard
    _node(make, operator.twin, inputs, made, name, graph, **attrs)


def _node(
    make: CodeNodes,
    op: str,
    inputs: list[gs.Tensor],
    out: gs.Tensor,
    name: str,
    graph: gs.Graph,
    **attrs: Any,
) -> gs.Node:
    return new_node(make.model, op, inputs, [out], name=name, attrs=attrs, graph=graph)


def _transposed(
    make: CodeNodes, tensor: gs.Tensor, perm: list[int], name: str, graph: gs.Graph
) -> gs.Tensor:
    out = variable(make.model, f"{tensor.name}.channels_first", like=None)
    _node(make, "Transpose", [tensor], out, name, graph, perm=perm)
    return out


def _softmax(
    make: CodeNodes,
    x: gs.Tensor,
    out: gs.Tensor,
    name: str,
    graph: gs.Graph,
    attrs: dict[str, Any],
    opset: int,
) -> None:
    """Softmax as the operator's own opset means it.

    Before opset 13 everything from the axis on was one row. Later models say that with Flatten.
    """
    model, axis = make.model, int(attrs.get("axis", -1))
    if opset >= 13:
        model.require_opset(13, "Softmax along one axis")
    last = axis == -1 or (x.shape is not None and axis == len(x.shape) - 1)
    if opset >= 13 or last or model.opset < 13:
        _node(make, "Softmax", [x], out, name, graph, axis=axis)
        return
    flat, rows, shape = (
        variable(model, f"{name}.{part}", like=None) for part in ("flat", "rows", "shape")
    )
    _node(make, "Flatten", [x], flat, f"{name}.flatten", graph, axis=axis)
    _node(make, "Softmax", [flat], rows, name, graph, axis=1)
    _node(make, "Shape", [x], shape, f"{name}.shape", graph)
    _node(make, "Reshape", [rows, shape], out, f"{name}.reshape", graph)


__all__ = ["lower"]
