"""MatMulInteger and ConvInteger with static parameters as float operators.

    sums = MatMulInteger(qa, qb, za, zb);  y = Cast<float>(sums) * m

With qa from a quantizer of scale sa this is MatMul((qa - za) * sa, (qb - zb) * sb) for
sb = m / sa. If m is written as the product of sa and another constant, that constant is sb and
nothing is lost; else sb is the quotient in float32, off by at most one unit in the last place,
which moves y by less than one part in eight million.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

from onnxq.dialects.code_nodes import CodeGrid, CodeNodes, grid_of
from onnxq.dialects.node_rewrite import Declined, attempt, invalid
from onnxq.edit import inputs_of, new_node, only_reader, producer, remove
from onnxq.graph import Model
from onnxq.graph.constants import array, computed
from onnxq.operators.integer_operators import DYNAMIC, SUMS
from onnxq.operators.traits import QUANTIZE
from onnxq.pass_ import Trace
from onnxq.quant.qparams import Array


def read_sums(make: CodeNodes, trace: Trace) -> None:
    """Rewrite every integer product whose parameters are constants."""
    for node in make.model.nodes(*SUMS):
        attempt(node, trace, partial(_read, node, make))


def _read(node: gs.Node, make: CodeNodes) -> str:
    model = make.model
    left, right, left_zero, right_zero = inputs_of(node, 4)
    if left is None or right is None:
        raise invalid("it needs two inputs")
    if producer(left, *DYNAMIC) is not None:
        raise Declined("dynamic quantization: the scale of its input is computed at run time")
    quantizer = producer(left, *QUANTIZE)
    if quantizer is None:
        raise Declined(
            f"its codes '{left.name}' do not come from a quantizer, so their scale is unknown"
        )
    grid = grid_of(quantizer, 1, None, None, np.uint8).checked(left)
    stored, stored_zero = array(right), computed(right_zero)
    if stored is None or (right_zero is not None and stored_zero is None):
        raise Declined("its second operand is computed at run time")
    if not stored.ndim or stored.dtype not in (np.int8, np.uint8):
        raise invalid(
            f"'{right.name}' ({stored.dtype}, shape {list(stored.shape)}) is not a weight in codes"
        )
    zero = np.zeros((), grid.zero_point.dtype) if left_zero is None else computed(left_zero)
    if zero is None or zero.size != 1 or zero.reshape(()) != grid.zero_point:
        raise Declined("its zero point differs from that of the quantizer before it")
    if zero.dtype != grid.zero_point.dtype:
        raise invalid(
            f"'{left.name}' has a {zero.dtype} zero point, but {grid.zero_point.dtype} codes"
        )
    cast, mul, factor_tensor = _scaled(node, model)
    axis = stored.ndim - 1 if node.op == "MatMulInteger" else 0
    factor = _one_per_channel(factor_tensor, node.op, stored.shape[axis])
    grid.check_reach(left)
    scale = _weight_scale(factor_tensor, factor, grid)
    weight = _grid(scale, stored, stored_zero, axis).checked(right)
    weight.check_reach(right)
    inputs = [make.real(left, grid), make.real(right, weight)]
    out, attrs, graph, twin = mul.outputs[0], dict(node.attrs), node.owner, SUMS[node.op]
    name = node.name or f"{out.name}.{twin}"
    for gone in (mul, cast, node):
        remove(gone, model)
    new_node(model, twin, inputs, [out], name=name, attrs=attrs, graph=graph)
    return "float product"


def _scaled(node: gs.Node, model: Model) -> tuple[gs.Node, gs.Node, gs.Tensor]:
    """The Cast and the Mul after the sums, and the factor."""
    sums = node.outputs[0]
    cast = sums.outputs[0] if sums.outputs else None
    if (
        cast is None
        or cast.op != "Cast"
        or cast.attrs.get("to") != TensorProto.FLOAT
        or not only_reader(sums, cast, model)
    ):
        raise Declined("its sums are not only cast to float and scaled")
    mul = cast.outputs[0].outputs[0] if cast.outputs[0].outputs else None
    if mul is None or mul.op != "Mul" or not only_reader(cast.outputs[0], mul, model):
        raise Declined("its sums are not scaled by one Mul")
    if not (mul.owner is cast.owner is node.owner):
        raise Declined("its sums are scaled in another graph")
    factor = mul.inputs[1] if mul.inputs[0] is cast.outputs[0] else mul.inputs[0]
    if computed(factor) is None and _product(factor) is None:
        raise Declined(f"the factor '{factor.name}' of its sums is computed at run time")
    return cast, mul, factor


def _product(tensor: gs.Tensor) -> tuple[Array, Array] | None:
    """The two constants whose product a factor is."""
    mul = producer(tensor, "Mul")
    if mul is None:
        return None
    left, right = map(computed, mul.inputs)
    return None if left is None or right is None else (left, right)


def _one_per_channel(tensor: gs.Tensor, op: str, channels: int) -> Array:
    """The factor, 0-d or one per output channel."""
    value = computed(tensor)
    if value is None:  # a product too large for `computed`
        pair = _product(tensor)
        assert pair is not None
        value = np.asarray(pair[0] * pair[1])
    if value.size == 1:
        return value.reshape(())
    # MatMul has its channels in the last dimension, Conv in the second of a result whose rank
    # the factor shares: [C, 1, 1] or [1, C, 1, 1].
    shape = list(value.shape)
    where = len(shape) - 1 if op == "MatMulInteger" else shape.index(max(shape))
    if value.size != channels or shape[where] != channels:
        raise Declined(f"its factor has shape {shape}, not one value per output channel")
    if op == "ConvInteger" and (where == len(shape) - 1 or where > 1):
        raise Declined(f"its factor has shape {shape}, which is not along channels")
    return value.reshape(-1)


def _weight_scale(tensor: gs.Tensor, factor: Array, grid: CodeGrid) -> Array:
    pair = _product(tensor)
    if pair is not None:
        for one, other in (pair, pair[::-1]):
            if one.size == 1 and one.reshape(()) == grid.scale:
                return np.asarray(other.reshape(factor.shape), np.float32)
    with np.errstate(over="ignore", under="ignore"):
        scale = np.asarray(factor / grid.scale, np.float32)
    sound = np.isfinite(factor) & (factor > 0)  # other factors are refused by the weight's grid
    ends = np.finfo(np.float32)
    if np.any(scale[sound] > ends.max):
        raise Declined("its factor / the scale of its input, the weight's scale, is beyond float32")
    if np.any(np.minimum(scale, factor)[sound] < ends.tiny):
        raise Declined("its factor, or the weight's scale that follows from it, is below float32")
    return scale


def _grid(scale: Array, stored: Array, zero_point: Array | None, axis: int) -> CodeGrid:
    zero = np.zeros((), stored.dtype) if zero_point is None else zero_point
    channels = stored.shape[axis]
    if zero.size not in (1, channels):
        raise invalid(f"{zero.size} zero points for {channels} output channels")
    if zero.size == 1 and scale.size == 1:
        return CodeGrid(scale.reshape(()), zero.reshape(()))
    scale, zero = (np.broadcast_to(a.reshape(-1), (channels,)).copy() for a in (scale, zero))
    return CodeGrid(scale, zero, axis)
