"""DQ -> float operator -> Q as one integer operator: the inverse of `qoperator_lowering`.

Fused is what onnxruntime has kernels for: 8-bit codes, one type for the first operand and the
result, int8 weights with int8 inputs, one scale per tensor except for weights, one zero point for
all channels of a weight. A Relu in front of the quantizer goes where the lowest code means zero:
saturation does its work. A bias becomes int32 codes of scale sx * sw, rounded half to even.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.dialects.code_nodes import CODES_SUFFIX, CodeGrid, grid_of
from onnxq.dialects.node_rewrite import Declined
from onnxq.edit import (
    constant,
    describe,
    inputs_of,
    new_node,
    only_reader,
    op_name,
    producer,
    remove,
    set_input,
    users,
    variable,
)
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.integer_operators import MICROSOFT, QOPERATORS, QOperator
from onnxq.operators.traits import DEQUANTIZE, QUANTIZE
from onnxq.quant.qparams import Array
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, add_metadata, metadata

NOT_IN_ONNXRUNTIME = ("QLinearReduceMean",)
TWINS: Mapping[str, QOperator] = {
    q.twin: q for q in QOPERATORS.values() if q.name not in NOT_IN_ONNXRUNTIME
}
"""The integer operator of each float operator, as far as onnxruntime runs it."""

_PRODUCTS = ("Conv", "MatMul", "Gemm")
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class _Operand:
    """One operand: the DequantizeLinear that makes it, and its grid."""

    dequantize: gs.Node
    grid: CodeGrid

    @property
    def codes(self) -> gs.Tensor:
        return self.dequantize.inputs[0]


def is_candidate(node: gs.Node, contrib: bool) -> bool:
    """Whether a node reads dequantized values and has an integer operator."""
    operator = TWINS[node.op]
    if not (contrib or operator.standard):
        return False
    first = operator.plain[-1] + 1 if operator.plain else 0
    return any(producer(t, *DEQUANTIZE) is not None for t in node.inputs[first:])


def fuse(node: gs.Node, model: Model) -> str:
    """Replace a float operator between quantizers; says by what. It may raise `Declined`."""
    operator = TWINS[node.op]
    relu, quantize = _quantizer(node, model)
    result = _eight_bits(grid_of(quantize, 1, None, None, np.uint8), "its result")
    first = len(operator.plain)
    count = len(node.inputs) - first if operator.repeated else len(operator.operands)
    operands = [_operand(node, first + i, i) for i in range(count)]
    _check_types(node, operands, result)
    if relu is not None and int(result.zero_point) != np.iinfo(result.zero_point.dtype).min:
        raise Declined(
            f"its result goes through {describe(relu)}, and the quantizer after that has codes "
            "below zero, so the two clip differently"
        )
    attrs = _attributes(node, model, result)
    bias = None
    if operator.bias is not None and inputs_of(node, 3)[2] is not None:
        bias = _bias(node, operands, model)
    _replace(node, operator, model, operands, bias, relu, quantize, result, attrs)
    return operator.name


# -- what may be fused --------------------------------------------------------------------------


def _quantizer(node: gs.Node, model: Model) -> tuple[gs.Node | None, gs.Node]:
    """The Relu, if any, and the QuantizeLinear that alone read the result."""
    out = node.outputs[0]
    relu: gs.Node | None = None
    if len(out.outputs) == 1 and out.outputs[0].op == "Relu":
        relu = out.outputs[0]
        if only_reader(out, relu, model):
            out = relu.outputs[0]
    quantize = out.outputs[0] if out.outputs else None
    if quantize is None or op_name(quantize) not in QUANTIZE:
        raise Declined(
            "its result is not quantized"
            if quantize is None
            else f"its result is not quantized: {describe(quantize)} reads it"
        )
    if not only_reader(out, quantize, model):
        raise Declined("its result is read in float, or quantized more than once")
    if quantize.owner is not node.owner:
        raise Declined("its result is quantized in another graph")
    return relu, quantize


def _operand(node: gs.Node, index: int, number: int) -> _Operand:
    tensor = inputs_of(node, index + 1)[index]
    dequantize = None if tensor is None else producer(tensor, *DEQUANTIZE)
    if tensor is None or dequantize is None:
        name = "?" if tensor is None else tensor.name
        raise Declined(f"its input {index} ('{name}') is not quantized")
    if dequantize.attrs.get("block_size", 0):
        raise Declined(f"'{tensor.name}' has one scale per block")
    codes = dequantize.inputs[0]
    axis = int(dequantize.attrs.get("axis", 1))
    kind = None if codes.dtype is None else np.dtype(codes.dtype)
    grid = _eight_bits(grid_of(dequantize, 1, codes, axis, kind), f"'{tensor.name}'", number)
    if grid.axis is not None:
        _check_channels(node, grid, number, codes)
    return _Operand(dequantize, grid)


def _eight_bits(grid: CodeGrid, what: str, number: int = 0) -> CodeGrid:
    dtype = grid.zero_point.dtype
    if dtype not in (np.int8, np.uint8):
        raise Declined(f"{what} has {dtype} codes; integer operators support int8 and uint8")
    if grid.scale.dtype != np.float32:
        raise Declined(f"{what} has a {grid.scale.dtype} scale; integer operators need float32")
    if grid.axis is not None and number != 1:
        raise Declined(f"{what} is an activation with one scale per channel")
    return grid


def _check_channels(node: gs.Node, grid: CodeGrid, number: int, codes: gs.Tensor) -> None:
    rank = len(codes.shape) if codes.shape is not None else None
    axis = grid.axis
    if axis is not None and axis < 0 and rank is not None:
        axis += rank
    wanted = {"Conv": 0, "Gemm": 0 if node.attrs.get("transB", 0) else 1}.get(node.op)
    if node.op == "MatMul" and rank == 2:
        wanted = 1
    if node.op not in _PRODUCTS or axis is None or axis != wanted:
        raise Declined(f"the scales of '{codes.name}' are not along output channels")
    if np.unique(grid.zero_point).size > 1:
        raise Declined(f"'{codes.name}' has different zero points for different channels")


def _check_types(node: gs.Node, operands: list[_Operand], result: CodeGrid) -> None:
    types = [o.grid.zero_point.dtype for o in operands]
    if types[0] != result.zero_point.dtype:
        raise Declined(f"its input has {types[0]} codes, its result {result.zero_point.dtype}")
    if node.op in _PRODUCTS:
        if types[0] == np.int8 and types[1] != np.int8:
            raise Declined("no kernel multiplies int8 inputs with uint8 weights")
    elif len(set(types)) > 1:
        raise Declined("its inputs have codes of different types")


def _attributes(node: gs.Node, model: Model, result: CodeGrid) -> dict[str, Any]:
    attrs = dict(node.attrs)
    if node.op == "Softmax":
        attrs.setdefault("axis", -1 if model.opset >= 13 else 1)
        attrs["opset"] = model.opset
        lowest = np.iinfo(result.zero_point.dtype).min
        if result.scale != np.float32(1 / 256) or int(result.zero_point) != lowest:
            raise Declined(
                "the integer Softmax always has scale 1/256 and the lowest code as zero point"
            )
    elif node.op == "Gemm":
        beta = float(attrs.pop("beta", 1.0))
        if beta != 1.0 and inputs_of(node, 3)[2] is not None:
            raise Declined("its beta is not 1")
    elif node.op == "AveragePool":
        if any(d != 1 for d in attrs.pop("dilations", ())):
            raise Declined("the integer AveragePool has no dilations")
        attrs["channels_last"] = 0
    elif node.op == "GlobalAveragePool":
        attrs["channels_last"] = 0
    return attrs


def _bias(node: gs.Node, operands: list[_Operand], model: Model) -> gs.Tensor:
    """The int32 codes of the bias."""
    tensor = node.inputs[2]
    left, right = operands[0].grid, operands[1].grid
    alpha = np.float32(node.attrs.get("alpha", 1.0))
    scale = (alpha * left.scale) * right.scale
    dequantize = producer(tensor, *DEQUANTIZE)
    if dequantize is not None:
        stored = array(dequantize.inputs[0])
        if stored is None:
            raise Declined(f"its bias '{tensor.name}' is computed at run time")
        axis = int(dequantize.attrs.get("axis", 1))
        grid = grid_of(dequantize, 1, dequantize.inputs[0], axis)
        same = stored.dtype == np.int32 and not np.any(grid.zero_point)
        fits = stored.ndim == 1 and grid.scale.shape in ((), scale.shape)
        if same and fits and np.all(grid.scale == scale):
            return dequantize.inputs[0]
        real = (stored.astype(np.float64) - grid.zero_point) * grid.scale.astype(np.float64)
    else:
        value = array(tensor)
        if value is None:
            raise Declined(f"its bias '{tensor.name}' is computed at run time")
        real = value.astype(np.float64)
    return constant(model, f"{tensor.name}.int32", _bias_codes(node, tensor, real, scale, operands))


def _bias_codes(
    node: gs.Node, tensor: gs.Tensor, real: Array, scale: Array, operands: list[_Operand]
) -> Array:
    shape = operands[1].codes.shape
    place = 1 if node.op == "Gemm" and not node.attrs.get("transB", 0) else 0
    channels = None if shape is None else shape[place]
    if not isinstance(channels, int) or real.size not in (1, channels):
        raise Declined(
            f"its bias '{tensor.name}' has shape {list(real.shape)}, not one value per channel"
        )
    if not np.all(scale >= np.finfo(np.float32).tiny):
        raise Declined("input scale * weight scale underflows float32")
    values = np.broadcast_to(real.reshape(-1), (channels,))
    codes = np.rint(values / scale.astype(np.float64))
    if np.any((codes < _INT32.min) | (codes > _INT32.max)):
        raise Declined(f"a value of its bias '{tensor.name}' exceeds int32 in steps of its scale")
    return codes.astype(np.int32)


# -- the rewrite --------------------------------------------------------------------------------


def _replace(
    node: gs.Node,
    operator: QOperator,
    model: Model,
    operands: list[_Operand],
    bias: gs.Tensor | None,
    relu: gs.Node | None,
    quantize: gs.Node,
    result: CodeGrid,
    attrs: dict[str, Any],
) -> None:
    triples = [[o.codes, *_parameters(o.dequantize, o.grid, model)] for o in operands]
    behind = _parameters(quantize, result, model)
    if operator.repeated:
        inputs = [*behind, *(t for triple in triples for t in triple)]
    else:
        inputs = [node.inputs[i] for i in operator.plain] + [t for tr in triples for t in tr]
        absent = gs.Variable("")
        if operator.name == "QGemm":
            inputs += [absent if bias is None else bias, *behind]
        else:
            inputs += [*behind, *([] if bias is None else [bias])]
    kept: dict[str, str] = {}
    for at, operand in zip(operator.positions(len(inputs)), operands, strict=True):
        stated = metadata(operand.dequantize)
        kept |= {f"{key}.{at}": stated[key] for key in (QUANT_MIN, QUANT_MAX) if key in stated}
    last = relu or node
    real, codes = last.outputs[0], quantize.outputs[0]
    name, graph = node.name or real.name, node.owner
    for gone in (quantize, *([] if relu is None else [relu]), node):
        remove(gone, model)
    out = codes
    if not model.is_output(codes):
        # Named so that the reader finds the name of the real values again.
        out = variable(model, f"{real.name}{CODES_SUFFIX}", like=codes)
        for user, index in users(codes):
            set_input(user, index, out)
    out.dtype = result.zero_point.dtype
    domain = "" if operator.standard else f"{MICROSOFT}::"
    made = new_node(
        model, f"{domain}{operator.name}", inputs, [out], name=name, attrs=attrs, graph=graph
    )
    if kept:
        add_metadata(made, kept)


def _parameters(node: gs.Node, grid: CodeGrid, model: Model) -> list[gs.Tensor]:
    """Scale and zero point of a Q or DQ node in the shape integer operators take."""
    given = inputs_of(node, 3)
    base = node.name or node.outputs[0].name
    found: list[gs.Tensor] = []
    for tensor, value, what in (
        (given[1], grid.scale, "scale"),
        (given[2], grid.zero_point, "zero_point"),
    ):
        fits = isinstance(tensor, gs.Constant) and tuple(tensor.shape) == value.shape
        found.append(tensor if fits else constant(model, f"{base}.{what}", value))
    return found


__all__ = ["TWINS", "fuse", "is_candidate"]
