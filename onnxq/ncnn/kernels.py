"""Layers with a kernel: convolutions and products, in int8 where both sides are quantized.

With only one of input and weight quantized, a layer runs in float on values that are already
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
    """A list of whole numbers among the attributes."""
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
    """The blob with a height of 1 where a layer has one spatial axis."""
    if len(shape) == 3:
        return blob
    if len(shape) != 2:
        raise NotInNcnn(f"its input has {len(shape)} axes after the batch, not 2 or 3")
    flat = net.temporary(f"{blob}.plane")
    net.reshape(f"{layer_name(node)}.plane", blob, (shape[0], 1, shape[1]), flat)
    return flat


def result(net: Network, node: gs.Node) -> tuple[str, Callable[[], None]]:
    """The blob a layer of planes writes, and what brings it to the shape of the graph."""
    shape = net.shape(node.outputs[0])
    top = net.made(node.outputs[0])
    if len(shape) == 3:
        return top, lambda: None
    inner = net.temporary(f"{top}.plane")
    return inner, lambda: net.reshape(f"{layer_name(node)}.line", inner, shape, top)


def _steps(params: QParams, axis: int, channels: int) -> Array:
    """One step per output channel of a quantized weight, whose channels lie along `axis`."""
    if params.axis not in (None, axis):
        raise NotInNcnn(
            f"the scales of '{params.tensor}' lie along axis {params.axis}, not along its outputs"
        )
    return np.broadcast_to(params.scale.reshape(-1), (channels,))


def conv(net: Network, node: gs.Node) -> None:
    """Convolution over one or two axes; grouped ones have one weight scale per group."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    values, params = net.weight(w)
    bias = None if b is None else net.weight(b)[0]
    shape = net.shape(x)
    group = int(node.attrs.get("group", 1))
    rank = values.ndim - 2
    if rank not in (1, 2) or len(shape) != rank + 1:
        raise NotInNcnn(f"it is a convolution over {rank} axes; ncnn's int8 ones are over 1 or 2")
    strides, dilations, pads = window(node, values.shape[2:])
    kernel = (1, *values.shape[2:]) if rank == 1 else values.shape[2:]
    outputs = values.shape[0]
    settings: dict[int, Value] = {0: outputs, 1: kernel[1], 11: kernel[0]}
    settings |= {2: dilations[1], 12: dilations[0], 3: strides[1], 13: strides[0]}
    settings |= {4: pads[1], 14: pads[0], 15: pads[3], 16: pads[2]}
    settings |= {5: int(bias is not None), 6: values.size}
    if group > 1:
        settings[7] = group
    quantized = net.quantized(x) if params is not None else None
    weights: list[Array]
    if quantized is None or params is None:
        blob, weights = net.blob(x), [values if params is None else params.fake(values)]
        weights += [] if bias is None else [bias]
    else:
        blob = quantized[0]
        steps = _steps(params, 0, outputs)
        if group > 1:
            each = steps.reshape(group, -1)
            if (each != each[:, :1]).any():
                raise NotInNcnn("its weight has several scales in one group, but ncnn supports one")
            steps = each[:, 0]
        settings[8] = 1 if group > 1 else 2
        weights = [params.quantize(values).astype(np.int8)]
        weights += [] if bias is None else [bias]
        weights += [inverse(steps), inverse(quantized[1].scale)]
    bottom = plane(net, node, blob, shape)
    top, finish = result(net, node)
    kind = "Convolution" if group == 1 else "ConvolutionDepthWise"
    net.add(kind, layer_name(node), [bottom], [top], settings, weights)
    finish()


def conv_transpose(net: Network, node: gs.Node) -> None:
    """In float: ncnn has no int8 form of it. Weights lie as (group, outputs, inputs, ...)."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    values, params = net.weight(w)
    if params is not None:
        values = params.fake(values)
    group = int(node.attrs.get("group", 1))
    if values.ndim != 4 or "output_shape" in node.attrs:
        raise NotInNcnn("only one over 2 axes and with explicit pads is written")
    strides, dilations, pads = window(node, values.shape[2:])
    extra = integers(node, "output_padding", [0, 0])
    bias = None if b is None else net.weight(b)[0]
    outputs = group * values.shape[1]
    settings: dict[int, Value] = {0: outputs, 1: values.shape[3], 11: values.shape[2]}
    settings |= {2: dilations[1], 12: dilations[0], 3: strides[1], 13: strides[0]}
    settings |= {4: pads[1], 14: pads[0], 15: pads[3], 16: pads[2], 18: extra[1], 19: extra[0]}
    settings |= {5: int(bias is not None), 6: values.size}
    if group > 1:
        settings[7] = group
    turned = values.reshape(group, -1, *values.shape[1:]).swapaxes(1, 2)
    weights = [np.ascontiguousarray(turned), *([] if bias is None else [bias])]
    kind = "Deconvolution" if group == 1 else "DeconvolutionDepthWise"
    net.add(
        *(kind, layer_name(node), [net.blob(x)], [net.made(node.outputs[0])]), settings, weights
    )


def linear(net: Network, node: gs.Node) -> None:
    """Gemm and MatMul; a MatMul takes the Add of its bias along."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    if node.op == "MatMul" and not is_constant(w) and net.quantized(w) is not None:
        return _matmul(net, node)
    try:
        values, params = net.weight(w)
    except NotInNcnn:
        return _matmul(net, node)
    if values.ndim != 2 or any(node.attrs.get(k, 1) != 1 for k in ("alpha", "beta")):
        raise NotInNcnn("its weight has more than 2 axes, or alpha or beta is not 1")
    if node.attrs.get("transA", 0):
        raise NotInNcnn("transA is set")
    across = bool(node.attrs.get("transB", 0))
    shape = net.shape(x)
    outputs = values.shape[0 if across else 1]
    bias = None if b is None else np.broadcast_to(net.weight(b)[0].reshape(-1), (outputs,))
    last, added = _with_bias(net, node)
    if added is not None:
        bias = np.broadcast_to(net.weight(added)[0].reshape(-1), (outputs,))
    if len(shape) > 2:
        raise NotInNcnn(f"its input has {len(shape)} axes after the batch, but ncnn supports 2")
    rows = values if across else np.ascontiguousarray(values.T)
    settings: dict[int, Value] = {0: outputs, 1: int(bias is not None), 2: values.size}
    plain = [] if bias is None else [np.ascontiguousarray(bias, np.float32)]
    quantized = net.quantized(x) if params is not None else None
    if quantized is None or params is None:
        if params is not None:
            rows = params.fake(values) if across else params.fake(values).T
        blob, weights = net.blob(x), [np.ascontiguousarray(rows), *plain]
    else:
        blob = quantized[0]
        codes = params.quantize(values).astype(np.int8)
        steps = _steps(params, 0 if across else 1, outputs)
        settings[8] = 2
        weights = [np.ascontiguousarray(codes if across else codes.T), *plain]
        weights += [inverse(steps), inverse(quantized[1].scale)]
    top = net.made(last.outputs[0])
    if len(shape) == 2 and shape[0] == 1:  # one row: ncnn takes it for a vector and gives one
        line, row = net.temporary(f"{blob}.line"), net.temporary(f"{top}.line")
        net.reshape(f"{layer_name(node)}.line", blob, (shape[1],), line)
        net.add("InnerProduct", layer_name(node), [line], [row], settings, weights)
        net.reshape(f"{layer_name(node)}.row", row, (1, outputs), top)
        return None
    net.add("InnerProduct", layer_name(node), [blob], [top], settings, weights)
    return None


def _with_bias(net: Network, node: gs.Node) -> tuple[gs.Node, gs.Tensor | None]:
    """The last node of a layer, and the bias that its second one adds."""
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
    blobs = [net.blob(t) for t in node.inputs]
    net.add("MatMul", layer_name(node), blobs, [net.made(node.outputs[0])])
