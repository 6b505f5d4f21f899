"""Linear layers (Conv, ConvTranspose, Gemm, MatMul) that absorb an affine step next to them.

After the layer, y * gain + shift per output channel:

    W' = W * gain                  on the output axis (see weight_axis)
    b' = b * gain + shift          Gemm: b is beta * C, and beta becomes 1

Before the layer, x * gain + shift per input channel, exact unless zero padding mixes with the
shifted values:

    W' = W * gain                  on the input axis
    b' = b + sum(W * shift)        Gemm: times alpha

MatMul has no bias: an Add after it is its bias, and is inserted if it is missing. A weight that is
read through a FakeQuantize keeps its codes (see rescale). Everything is computed in float64 and
rounded once to the type of the weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.edit import inputs_of, only_reader, op_name, producer
from onnxq.folding.affine import Affine, CannotFold, ChannelLayout, all_finite, quiet
from onnxq.folding.rescale_weight import Rescaled, rescale
from onnxq.graph import Model
from onnxq.graph.constants import array, is_constant
from onnxq.graph.dequantized import Values, loaded, unread
from onnxq.operators.traits import DEQUANTIZE, QUANTIZE
from onnxq.operators.weight_axis import BIAS_INPUT, WeightAxis, weight_axis
from onnxq.quant.qparams import Array
from onnxq.storage.exporter import describe


@dataclass(slots=True)
class LinearLayer:
    """A linear layer with a constant weight."""

    node: gs.Node
    values: Values
    """The input of the layer, or of the FakeQuantize before it."""
    where: WeightAxis
    fake: gs.Node | None
    """The FakeQuantize of the weight."""
    source: gs.Tensor
    """The tensor that holds `weight`."""
    layout: ChannelLayout
    """The output channels."""
    rank: int | None
    """Rank of the output, if known."""

    @property
    def weight(self) -> Array:
        """`values`, computed."""
        return loaded(self.values)


@quiet
def weight_value(tensor: gs.Tensor) -> Values | None:
    """The value of a constant weight, which may be a product or quotient of two constants.

    QAT training graphs quantize W * f. The product is computed in the type of W, as in a runtime,
    so its codes are those of training.
    """
    value = unread(tensor)
    if value is not None:
        return value
    node = producer(tensor, "Mul", "Div")
    if node is None:
        return None
    a, b = array(node.inputs[0]), array(node.inputs[1])
    if a is None or b is None:
        return None
    try:
        return np.asarray(a * b if node.op == "Mul" else a / b)
    except ValueError:
        return None  # the shapes do not broadcast: no runtime accepts the model


def read_layer(node: gs.Node) -> LinearLayer:
    """`node` as a layer; raises CannotFold if its weight is unknown."""
    source = node.inputs[1]
    fake = producer(source, fake_quantize.FAKE_QUANTIZE)
    if fake is not None:
        source = fake.inputs[0]
    weight = weight_value(source)
    if weight is None:
        raise CannotFold(_unknown("weight", source, node))
    where = weight_axis(node, weight.ndim)
    if where is None:
        raise CannotFold(f"the weight of {describe(node)} has {weight.ndim} dimensions")
    if where.groups < 1 or weight.shape[0] % where.groups:
        raise CannotFold(f"the weight of {describe(node)} does not match its {where.groups} groups")
    channels = where.channels(weight.shape)
    if not weight.size:
        raise CannotFold(f"the weight of {describe(node)} is empty")
    rank: int | None
    if node.op in ("Conv", "ConvTranspose"):
        rank, from_end = weight.ndim, weight.ndim - 1
    else:
        rank, from_end = 2 if node.op == "Gemm" else _matmul_rank(node, weight.ndim), 1
    layout = ChannelLayout(channels, from_end, rank or weight.ndim - 1)
    return LinearLayer(node, weight, where, fake, source, layout, rank)


def _matmul_rank(node: gs.Node, weight_rank: int) -> int | None:
    made = node.outputs[0].shape
    if made is not None:
        return len(made)
    read = node.inputs[0].shape
    if read is None:
        return None
    return weight_rank - 1 if len(read) == 1 else max(len(read), weight_rank)


def _unknown(what: str, tensor: gs.Tensor, node: gs.Node) -> str:
    """A sentence that says why the value of a weight or bias is unknown."""
    source = producer(tensor)
    why = "is supplied by the caller" if source is None else f"comes from {describe(source)}"
    if source is not None and op_name(source) in (*QUANTIZE, *DEQUANTIZE):
        why += ": run 'read-qdq' first"
    return f"the {what} '{tensor.name}' of {describe(node)} is not a constant, it {why}"


def other_use(tensor: gs.Tensor, model: Model) -> str:
    """The other use of a tensor that is not for one node alone, in words."""
    return "is a graph output" if model.is_output(tensor) else "has another consumer"


def check_channel_axis(layer: LinearLayer, norm: gs.Node) -> None:
    """Raise unless BatchNormalization, on axis 1, works on the channels of the layer.

    A MatMul has its channels on the last axis.
    """
    if layer.node.op != "MatMul":
        return
    shape = norm.outputs[0].shape
    rank = layer.rank if shape is None else len(shape)
    if rank is None:
        raise CannotFold(
            f"the rank of '{norm.inputs[0].name}' is unknown, and the channels of a MatMul are "
            "those of BatchNormalization only for rank 2: run 'infer-shapes' first"
        )
    if rank != 2:
        raise CannotFold(
            f"it works on axis 1 of {rank} axes, but the channels of {describe(layer.node)} are "
            "on the last"
        )


def bias_add(node: gs.Node, model: Model) -> gs.Node | None:
    """The Add that is the bias of a MatMul: only it reads the product, the rest is constant."""
    y = node.outputs[0]
    add = y.outputs[0] if node.op == "MatMul" and y.outputs else None
    if add is None or op_name(add) != "Add" or not only_reader(y, add, model):
        return None
    return add if is_constant(add.inputs[1 if add.inputs[0] is y else 0]) else None


# -- arithmetic -------------------------------------------------------------------------------


def scaled_outputs(layer: LinearLayer, gain: Array, flip: bool = True) -> Array | Rescaled:
    """The weight times one gain per output channel."""
    weight, fake = layer.weight, layer.fake
    if fake is None:
        return rounded(layer.where.scale(weight, gain), weight.dtype, "weight")
    for tensor in fake.inputs[1:3]:
        if not is_constant(tensor):
            raise CannotFold(_unknown("scale or zero point", tensor, fake))
    return rescale(fake_quantize.params_of(fake), weight, layer.where, gain, flip)


def scaled_inputs(layer: LinearLayer, step: Affine) -> tuple[Array, Array]:
    """The weight times one gain per input channel, and what the shifts add to each output."""
    node, weight = layer.node, layer.weight
    if layer.fake is not None:
        raise CannotFold(
            f"the weight of {describe(node)} after it is quantized, and its scales cannot "
            "contain a gain per input channel"
        )
    values = weight.astype(np.float64)
    if node.op == "Conv":
        groups = int(node.attrs.get("group", 1))
        gain, shift = step.vectors(weight.shape[1] * groups)
        if shift.any() and _is_padded(node):
            raise CannotFold(
                f"{describe(node)} after it pads with zeros, which the shift would change"
            )
        values = values.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        view = (groups, 1, weight.shape[1], 1)
        added = (values * shift.reshape(view)).sum(axis=(2, 3)).reshape(-1)
        scaled = (values * gain.reshape(view)).reshape(weight.shape)
    elif node.op == "Gemm" and node.attrs.get("transB", 0):
        gain, shift = step.vectors(weight.shape[1])
        scaled, added = values * gain, values @ shift
    elif weight.ndim == 2 and node.op in ("Gemm", "MatMul"):
        gain, shift = step.vectors(weight.shape[0])
        scaled, added = values * gain[:, None], shift @ values
    else:
        raise CannotFold(f"{describe(node)} after it does not sum over the channels it scales")
    return rounded(scaled, weight.dtype, "weight"), added * node.attrs.get("alpha", 1.0)


def _is_padded(node: gs.Node) -> bool:
    mode = node.attrs.get("auto_pad", "NOTSET")
    return any(node.attrs.get("pads", ())) or mode not in ("NOTSET", "VALID")


def bias_of(layer: LinearLayer) -> tuple[Array | None, np.dtype[np.generic]]:
    """The bias of each output channel, in float64, and its type in the file."""
    node, dtype = layer.node, layer.values.dtype
    tensor = inputs_of(node, 3)[2] if node.op in BIAS_INPUT else None
    beta = node.attrs.get("beta", 1.0) if node.op == "Gemm" else 1.0
    if tensor is None or beta == 0.0:
        return None, dtype
    value = array(tensor)
    if value is None:
        raise CannotFold(_unknown("bias", tensor, node))
    channels = layer.layout.channels
    if node.op == "Gemm":
        vector = layer.layout.vector(value)
    else:
        vector = value.astype(np.float64) if value.shape == (channels,) else None
    if vector is None:
        raise CannotFold(
            f"the bias '{tensor.name}' of {describe(node)} has shape {value.shape}, "
            f"not one value for each of {channels} channels"
        )
    if isinstance(vector, float):
        vector = np.full(channels, vector)
    return vector if beta == 1.0 else vector * beta, value.dtype


def rounded(values: Array, dtype: np.dtype[np.generic], what: str) -> Array:
    """`values` in the type of the layer; raises if that loses them. Call it inside `quiet`."""
    made = values.astype(dtype)
    if not all_finite(made):
        raise CannotFold(f"the folded {what} leaves the range of {dtype}")
    if made.itemsize < 4 and made.size:
        # Small halves have few digits: more than rounding to 11 bits would harm the result.
        error = np.abs(made.astype(np.float64) - values).max()
        if error > 2.0**-8 * np.abs(values).max():
            raise CannotFold(f"the folded {what} is too small for {dtype}")
    return made
