"""Layers with a kernel: convolutions and products, in int8 if both sides are quantized.

If only one of input and weight is quantized, a layer runs in float on values that are already
rounded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of
from onnxq.graph.constants import is_constant
from onnxq.ncnn.network import Network, NotInNcnn, inverse, layer_name
from onnxq.ncnn.program import Value
from onnxq.operators.op_kind import is_bias_of
from onnxq.quant.qparams import Array, QParams


def integers(node: gs.Node, name: str, default: list[int]) -> list[int]:
    """An attribute that is a list of integers."""
    return [int(v) for v in node.attrs.get(name, default)]


def window(node: gs.Node, kernel: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and pads (top, left, bottom, right) of a node, in two dimensions."""
    rank = len(kernel)
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise NotInNcnn(f"auto_pad is {node.attrs['auto_pad']}; only explicit pads are written")
    strides = integers(node, "strides", [1] * rank)
    dilations = integers(node, "dilations", [1] * rank)
    pads = integers(node, "pads", [0] * 2 * rank)
    if rank == 1:
        return [1, *strides], [1, *dilations], [0, pads[0], 0, pads[1]]
    return strides, dilations, pads


def plane(net: Network, node: gs.Node, blob: str, shape: tuple[int, ...]) -> str:
    """The blob, with a height of 1 if the layer has one spatial axis."""
    if len(shape) == 3:
        return blob
    if len(shape) != 2:
        raise NotInNcnn(f"its input has {len(shape)} axes after the batch, not 2 or 3")
    flat = net.temporary(f"{blob}.plane")
    net.reshape(f"{layer_name(node)}.plane", blob, (shape[0], 1, shape[1]), flat)
    return flat


def result(net: Network, node: gs.Node) -> tuple[str, Callable[[], None]]:
    """The blob that a layer of planes writes, and a function that restores the graph's shape."""
    shape = net.shape(node.outputs[0])
    top = net.made(node.outputs[0])
    if len(shape) == 3:
        return top, lambda: None
    inner = net.temporary(f"{top}.plane")
    return inner, lambda: net.reshape(f"{layer_name(node)}.line", inner, shape, top)


def _window_settings(node: gs.Node, outputs: int, kernel: tuple[int, ...]) -> dict[int, Value]:
    """The parameters of a convolution: outputs, kernel, dilations, strides and pads."""
    strides, dilations, pads = window(node, kernel)
    rows, columns = (1, *kernel) if len(kernel) == 1 else kernel
    settings: dict[int, Value] = {0: outputs, 1: columns, 11: rows}
    settings |= {2: dilations[1], 12: dilations[0], 3: strides[1], 13: strides[0]}
    return settings | {4: pads[1], 14: pads[0], 15: pads[3], 16: pads[2]}


def _operands(
    net: Network, x: gs.Tensor, weight: tuple[Array, QParams | None], axis: int, group: int = 1
) -> tuple[str, Array, list[Array]]:
    """The blob to multiply and the weight; if both are codes, also the scales of both.

    The outputs of the weight lie along `axis`; the outputs of a group share one scale.
    """
    values, params = weight
    if params is None:
        return net.blob(x), values, []
    quantized = net.quantized(x)
    if quantized is None:
        return net.blob(x), params.fake(values), []
    if params.axis not in (None, axis):
        raise NotInNcnn(
            f"the scales of '{params.tensor}' lie along axis {params.axis}, not along its outputs"
        )
    steps = np.broadcast_to(params.scale.reshape(-1), (values.shape[axis],))
    if group > 1:
        each = steps.reshape(group, -1)
        if (each != each[:, :1]).any():
            raise NotInNcnn("its weight has several scales in one group, but ncnn supports one")
        steps = each[:, 0]
    scales = [inverse(steps), inverse(quantized[1].scale)]
    return quantized[0], params.quantize(values).astype(np.int8), scales


def conv(net: Network, node: gs.Node) -> None:
    """Convolution over one or two axes; grouped ones have one weight scale per group."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    weight = net.weight(w)
    values = weight[0]
    bias = [] if b is None else [net.weight(b)[0]]
    shape = net.shape(x)
    group = int(node.attrs.get("group", 1))
    rank = values.ndim - 2
    if rank not in (1, 2) or len(shape) != rank + 1:
        raise NotInNcnn(f"it is a convolution over {rank} axes; ncnn's int8 ones are over 1 or 2")
    settings = _window_settings(node, values.shape[0], values.shape[2:])
    settings |= {5: len(bias), 6: values.size}
    blob, kernel, scales = _operands(net, x, weight, 0, group)
    if group > 1:
        settings[7] = group
    if scales:
        settings[8] = 1 if group > 1 else 2
    bottom = plane(net, node, blob, shape)
    top, finish = result(net, node)
    kind = "Convolution" if group == 1 else "ConvolutionDepthWise"
    net.add(kind, layer_name(node), [bottom], [top], settings, [kernel, *bias, *scales])
    finish()


def conv_transpose(net: Network, node: gs.Node) -> None:
    """Transposed convolution, in float: ncnn has no int8 form of it."""
    _, w, b = inputs_of(node, 3)
    assert w is not None
    values, params = net.weight(w)
    if params is not None:
        values = params.fake(values)
    group = int(node.attrs.get("group", 1))
    if values.ndim != 4 or "output_shape" in node.attrs or group != 1:
        raise NotInNcnn("only one over 2 axes, in one group and with explicit pads is written")
    settings = _window_settings(node, values.shape[1], values.shape[2:])
    extra = integers(node, "output_padding", [0, 0])
    bias = [] if b is None else [net.weight(b)[0]]
    settings |= {18: extra[1], 19: extra[0], 5: len(bias), 6: values.size}
    net.layer("Deconvolution", node, settings, [values.swapaxes(0, 1), *bias])


def linear(net: Network, node: gs.Node) -> None:
    """Gemm, and MatMul together with the Add of its bias."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    if node.op == "MatMul" and not is_constant(w) and net.quantized(w) is not None:
        return _matmul(net, node)
    try:
        weight = net.weight(w)
    except NotInNcnn:
        return _matmul(net, node)
    values = weight[0]
    if values.ndim != 2 or any(node.attrs.get(k, 1) != 1 for k in ("alpha", "beta")):
        raise NotInNcnn("its weight has more than 2 axes, or alpha or beta is not 1")
    if node.attrs.get("transA", 0):
        raise NotInNcnn("transA is set")
    across = bool(node.attrs.get("transB", 0))
    shape = net.shape(x)
    axis = 0 if across else 1
    outputs = values.shape[axis]
    last, added = _with_bias(net, node)
    bias = [
        np.broadcast_to(net.weight(t)[0].reshape(-1), (outputs,))
        for t in (b, added)
        if t is not None
    ]
    if len(shape) > 2:
        raise NotInNcnn(f"its input has {len(shape)} axes after the batch, but ncnn supports 2")
    settings: dict[int, Value] = {0: outputs, 1: len(bias), 2: values.size}
    blob, kernel, scales = _operands(net, x, weight, axis)
    if scales:
        settings[8] = 2
    weights = [kernel if across else kernel.T, *bias, *scales]
    top = net.made(last.outputs[0])
    if len(shape) == 2 and shape[0] == 1:  # ncnn reads one row as a vector, and returns a vector
        line, row = net.temporary(f"{blob}.line"), net.temporary(f"{top}.line")
        net.reshape(f"{layer_name(node)}.line", blob, (shape[1],), line)
        net.add("InnerProduct", layer_name(node), [line], [row], settings, weights)
        net.reshape(f"{layer_name(node)}.row", row, (1, outputs), top)
        return None
    net.add("InnerProduct", layer_name(node), [blob], [top], settings, weights)
    return None


def _with_bias(net: Network, node: gs.Node) -> tuple[gs.Node, gs.Tensor | None]:
    """The last node of a layer, and the bias if that node is an Add."""
    (made,) = node.outputs
    adds = [n for n in made.outputs if is_bias_of(n) is node]
    if node.op != "MatMul" or len(made.outputs) != 1 or not adds or net.model.is_output(made):
        return node, None
    net.done.add(id(adds[0]))
    return adds[0], adds[0].inputs[1 if adds[0].inputs[0] is made else 0]


def _matmul(net: Network, node: gs.Node) -> None:
    """A product of two activations, in float."""
    if node.op != "MatMul":
        raise NotInNcnn("its weight is computed at run time")
    shapes = [net.shape(t) for t in node.inputs]
    if len(shapes[0]) != len(shapes[1]) or shapes[0][:-2] != shapes[1][:-2]:
        raise NotInNcnn(f"shapes {shapes[0]} and {shapes[1]} are not multiplied one by one")
    net.layer("MatMul", node, inputs=None)
