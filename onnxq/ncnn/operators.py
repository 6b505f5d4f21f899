"""The operators that ncnn runs, each as the layers that compute it.

An int8 layer is a Conv, or a product with a constant, whose input and weight are both quantized.
With only one of the two it runs in float on values that are already rounded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.constants import array, scalar
from onnxq.edit import inputs_of
from onnxq.ncnn.network import Network, NotInNcnn, dims, inverse, layer_name
from onnxq.ncnn.program import Value
from onnxq.op_kind import is_bias_of
from onnxq.qparams import Array, QParams

Translator = Callable[[Network, gs.Node], None]


def _attribute(node: gs.Node, name: str, default: list[int]) -> list[int]:
    return [int(v) for v in node.attrs.get(name, default)]


def _window(node: gs.Node, kernel: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and pads (top, left, bottom, right) of a node, in two dimensions."""
    rank = len(kernel)
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise NotInNcnn(f"auto_pad is {node.attrs['auto_pad']}; only explicit pads are written")
    strides = _attribute(node, "strides", [1] * rank)
    dilations = _attribute(node, "dilations", [1] * rank)
    pads = _attribute(node, "pads", [0] * 2 * rank)
    if rank == 1:
        return [1, *strides], [1, *dilations], [0, pads[0], 0, pads[1]]
    return strides, dilations, pads


def _plane(net: Network, node: gs.Node, blob: str, shape: tuple[int, ...]) -> str:
    """The blob with a height of 1 where a layer has one spatial axis."""
    if len(shape) == 3:
        return blob
    if len(shape) != 2:
        raise NotInNcnn(f"its input has {len(shape)} axes behind the batch, not 2 or 3")
    flat = net.temporary(f"{blob}.plane")
    net.reshape(f"{layer_name(node)}.plane", blob, (shape[0], 1, shape[1]), flat)
    return flat


def _result(net: Network, node: gs.Node) -> tuple[str, Callable[[], None]]:
    """The blob a layer of planes writes, and what brings it to the shape of the graph."""
    shape = net.shape(node.outputs[0])
    top = net.made(node.outputs[0])
    if len(shape) == 3:
        return top, lambda: None
    inner = net.temporary(f"{top}.plane")
    return inner, lambda: net.reshape(f"{layer_name(node)}.line", inner, shape, top)


def _kernel(values: Array, params: QParams | None, channels: int, what: str) -> Array:
    """One step per output channel of a quantized weight."""
    assert params is not None
    steps = np.broadcast_to(params.scale.reshape(-1), (channels,))
    if params.axis not in (None, 0):
        raise NotInNcnn(f"the scales of {what} lie along axis {params.axis}, not along its outputs")
    return np.asarray(steps)


def _conv(net: Network, node: gs.Node) -> None:
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    values, params = net.weight(w)
    bias = None if b is None else net.weight(b)[0]
    shape = net.shape(x)
    group = int(node.attrs.get("group", 1))
    rank = values.ndim - 2
    if rank not in (1, 2) or len(shape) != rank + 1:
        raise NotInNcnn(f"it is a convolution over {rank} axes; ncnn's int8 ones are over 1 or 2")
    strides, dilations, pads = _window(node, values.shape[2:])
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
        steps = _kernel(values, params, outputs, f"'{w.name}'")
        if group > 1:
            each = steps.reshape(group, -1)
            if (each != each[:, :1]).any():
                raise NotInNcnn("its weight has several scales in one group, and ncnn takes one")
            steps = each[:, 0]
        settings[8] = 1 if group > 1 else 2
        weights = [params.quantize(values).astype(np.int8)]
        weights += [] if bias is None else [bias]
        weights += [inverse(steps), inverse(quantized[1].scale)]
    plane = _plane(net, node, blob, shape)
    top, finish = _result(net, node)
    kind = "Convolution" if group == 1 else "ConvolutionDepthWise"
    net.add(kind, layer_name(node), [plane], [top], settings, weights)
    finish()


def _conv_transpose(net: Network, node: gs.Node) -> None:
    """In float: ncnn has no int8 form of it."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    values, params = net.weight(w)
    if params is not None:
        values = params.fake(values)
    group = int(node.attrs.get("group", 1))
    if values.ndim != 4 or "output_shape" in node.attrs or group != 1:
        raise NotInNcnn("only one over 2 axes, in one group and with explicit pads is written")
    strides, dilations, pads = _window(node, values.shape[2:])
    extra = _attribute(node, "output_padding", [0, 0])
    bias = None if b is None else net.weight(b)[0]
    outputs = values.shape[1]
    settings: dict[int, Value] = {0: outputs, 1: values.shape[3], 11: values.shape[2]}
    settings |= {2: dilations[1], 12: dilations[0], 3: strides[1], 13: strides[0]}
    settings |= {4: pads[1], 14: pads[0], 15: pads[3], 16: pads[2], 18: extra[1], 19: extra[0]}
    settings |= {5: int(bias is not None), 6: values.size}
    weights = [np.ascontiguousarray(values.swapaxes(0, 1)), *([] if bias is None else [bias])]
    net.add(
        *("Deconvolution", layer_name(node), [net.blob(x)], [net.made(node.outputs[0])]),
        settings,
        weights,
    )


def _linear(net: Network, node: gs.Node) -> None:
    """Gemm and MatMul; a MatMul takes the Add of its bias along."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    if node.op == "MatMul" and array(w) is None and net.quantized(w) is not None:
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
        raise NotInNcnn(f"its input has {len(shape)} axes behind the batch, and ncnn takes 2")
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
        if params.axis not in (None, 0 if across else 1):
            raise NotInNcnn(f"the scales of '{w.name}' do not lie along its outputs")
        codes = params.quantize(values).astype(np.int8)
        steps = np.broadcast_to(params.scale.reshape(-1), (outputs,))
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


_ARITHMETIC = {"Add": (0, 0), "Sub": (1, 7), "Mul": (2, 2), "Div": (3, 8)}
"""BinaryOp's numbers, for a op b and for b op a."""


def _arithmetic(net: Network, node: gs.Node) -> None:
    first, second = node.inputs
    number, reverse = _ARITHMETIC[node.op]
    fixed = [array(t) is not None for t in (first, second)]
    if all(fixed):
        raise NotInNcnn("both its inputs are constants; 'fold-constants' computes it")
    top = node.outputs[0]
    if not any(fixed):
        if len(net.shape(first)) != len(net.shape(second)):
            raise NotInNcnn("its inputs have different ranks")
        bottoms = [net.blob(first), net.blob(second)]
        net.add("BinaryOp", layer_name(node), bottoms, [net.made(top)], {0: number})
        return
    data, other = (second, first) if fixed[0] else (first, second)
    if fixed[0]:
        number = reverse
    value, shape = scalar(other), net.shape(top)
    bottom = net.blob(data)
    if value is not None and net.shape(data) == shape:
        settings: dict[int, Value] = {0: number, 1: 1, 2: value}
        net.add("BinaryOp", layer_name(node), [bottom], [net.made(top)], settings)
        return
    values = np.asarray(array(other), np.float32)
    wide = (1,) * (len(shape) + 1 - values.ndim) + values.shape
    if len(wide) != len(shape) + 1 or wide[0] != 1 or len(net.shape(data)) != len(shape):
        raise NotInNcnn(f"its constant of shape {values.shape} adds an axis")
    held = net.temporary(other.name)
    settings = dims(wide[1:])
    net.add("MemoryData", f"{layer_name(node)}.constant", [], [held], settings, [values])
    net.add("BinaryOp", layer_name(node), [bottom, held], [net.made(top)], {0: number})


def _simple(
    kind: str, settings: Callable[[Network, gs.Node], dict[int, Value]] | None = None
) -> Translator:
    """An operator that one layer with one input computes."""

    def translate(net: Network, node: gs.Node) -> None:
        params = {} if settings is None else settings(net, node)
        bottom = net.blob(node.inputs[0])
        net.add(kind, layer_name(node), [bottom], [net.made(node.outputs[0])], params)

    return translate


def _bounds(net: Network, node: gs.Node) -> dict[int, Value]:
    _, low, high = inputs_of(node, 3)
    ends = [node.attrs.get("min", scalar(low)), node.attrs.get("max", scalar(high))]
    if (low is not None and ends[0] is None) or (high is not None and ends[1] is None):
        raise NotInNcnn("its bounds are computed at run time")
    largest = float(np.finfo(np.float32).max)
    return {
        0: -largest if ends[0] is None else float(ends[0]),
        1: largest if ends[1] is None else float(ends[1]),
    }


def _hard(net: Network, node: gs.Node) -> dict[int, Value]:
    names = ("alpha", "beta")
    default = (1 / 6, 0.5) if node.op == "HardSwish" else (0.2, 0.5)
    alpha, beta = (float(node.attrs.get(k, d)) for k, d in zip(names, default, strict=True))
    return {0: alpha, 1: beta}


def _along(net: Network, node: gs.Node, default: int) -> int:
    """The axis of a node, counted without the batch."""
    axis = int(node.attrs.get("axis", default))
    rank = len(net.shape(node.inputs[0])) + 1
    axis += rank if axis < 0 else 0
    if axis == 0:
        raise NotInNcnn("it works along the batch")
    return axis - 1


def _softmax(net: Network, node: gs.Node) -> dict[int, Value]:
    axis = _along(net, node, -1 if net.model.opset >= 13 else 1)
    if net.model.opset < 13 and axis != len(net.shape(node.inputs[0])) - 1:
        raise NotInNcnn("before opset 13 it normalises all axes from the given one on")
    return {0: axis, 1: 1}


def _concat(net: Network, node: gs.Node) -> None:
    bottoms, axis = [net.blob(t) for t in node.inputs], _along(net, node, 1)
    net.add("Concat", layer_name(node), bottoms, [net.made(node.outputs[0])], {0: axis})


def _shaped(net: Network, node: gs.Node) -> None:
    bottom, shape = net.blob(node.inputs[0]), net.shape(node.outputs[0])
    net.reshape(layer_name(node), bottom, shape, net.made(node.outputs[0]))


_ORDERS = {(0, 1, 2): 0, (0, 2, 1): 1, (1, 0, 2): 2, (1, 2, 0): 3, (2, 0, 1): 4, (2, 1, 0): 5}
"""Permute's numbers for three axes (c, h, w) in the order they come out."""


def _transpose(net: Network, node: gs.Node) -> None:
    rank = len(net.shape(node.inputs[0])) + 1
    perm = _attribute(node, "perm", list(reversed(range(rank))))
    if perm[0] != 0:
        raise NotInNcnn("it moves the batch")
    order = tuple(p - 1 for p in perm[1:])
    number = _ORDERS[order] if len(order) == 3 else int(order == (1, 0))
    bottom = net.blob(node.inputs[0])
    net.add("Permute", layer_name(node), [bottom], [net.made(node.outputs[0])], {0: number})


def _pool(net: Network, node: gs.Node) -> None:
    kernel = tuple(_attribute(node, "kernel_shape", []))
    shape = net.shape(node.inputs[0])
    if node.attrs.get("ceil_mode", 0) or len(kernel) + 1 != len(shape) or len(node.outputs) > 1:
        raise NotInNcnn("only pools that round down, over 1 or 2 axes, are written")
    strides, dilations, pads = _window(node, kernel)
    if dilations != [1, 1]:
        raise NotInNcnn("it is dilated")
    kernel = (1, *kernel) if len(kernel) == 1 else kernel
    settings: dict[int, Value] = {0: int(node.op == "AveragePool"), 1: kernel[1], 11: kernel[0]}
    settings |= {2: strides[1], 12: strides[0], 3: pads[1], 13: pads[0], 14: pads[3], 15: pads[2]}
    settings |= {5: 1, 6: int(node.attrs.get("count_include_pad", 0))}
    plane = _plane(net, node, net.blob(node.inputs[0]), shape)
    top, finish = _result(net, node)
    net.add("Pooling", layer_name(node), [plane], [top], settings)
    finish()


def _global_pool(net: Network, node: gs.Node) -> None:
    shape = net.shape(node.inputs[0])
    plane = _plane(net, node, net.blob(node.inputs[0]), shape)
    flat = net.temporary(f"{node.outputs[0].name}.flat")
    average = int(node.op == "GlobalAveragePool")
    net.add("Pooling", layer_name(node), [plane], [flat], {0: average, 4: 1})
    top = net.made(node.outputs[0])
    net.reshape(f"{layer_name(node)}.shape", flat, net.shape(node.outputs[0]), top)


def _layer_norm(net: Network, node: gs.Node) -> None:
    x, gain, shift = inputs_of(node, 3)
    assert x is not None
    shape = net.shape(x)
    if _along(net, node, -1) != len(shape) - 1 or len(node.outputs) > 1:
        raise NotInNcnn("it normalises more than the last axis")
    scale = np.ones(shape[-1], np.float32) if gain is None else net.weight(gain)[0]
    offset = np.zeros(shape[-1], np.float32) if shift is None else net.weight(shift)[0]
    settings: dict[int, Value] = {0: shape[-1], 1: float(node.attrs.get("epsilon", 1e-5)), 2: 1}
    bottom, top = net.blob(x), net.made(node.outputs[0])
    net.add("LayerNorm", layer_name(node), [bottom], [top], settings, [scale, offset])


def _prelu(net: Network, node: gs.Node) -> None:
    slope = net.weight(node.inputs[1])[0].reshape(-1)
    shape = net.shape(node.inputs[0])
    if slope.size not in (1, shape[0]):
        raise NotInNcnn("its slope is neither one number nor one per channel")
    bottom, top = net.blob(node.inputs[0]), net.made(node.outputs[0])
    net.add("PReLU", layer_name(node), [bottom], [top], {0: slope.size}, [slope])


def _resize(net: Network, node: gs.Node) -> None:
    before, after = net.shape(node.inputs[0]), net.shape(node.outputs[0])
    whole = len(before) == 3 and all(b % a == 0 for a, b in zip(before, after, strict=True))
    mode = node.attrs.get("mode", "nearest")
    rule = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    # With whole factors, floor(i / factor) is what every rule but aligned corners comes to.
    floors = rule == "asymmetric" and node.attrs.get("nearest_mode", "floor") == "floor"
    halves = rule in ("half_pixel", "pytorch_half_pixel")
    if not whole or mode != "nearest" or not (floors or halves) or before[0] != after[0]:
        raise NotInNcnn("only nearest neighbours with whole factors are written")
    settings: dict[int, Value] = {0: 1, 1: after[1] / before[1], 2: after[2] / before[2]}
    settings |= {3: after[1], 4: after[2]}
    bottom, top = net.blob(node.inputs[0]), net.made(node.outputs[0])
    net.add("Interp", layer_name(node), [bottom], [top], settings)


TRANSLATORS: dict[str, Translator] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _linear,
    "MatMul": _linear,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    "Relu": _simple("ReLU"),
    "LeakyRelu": _simple("ReLU", lambda net, node: {0: float(node.attrs.get("alpha", 0.01))}),
    "Clip": _simple("Clip", _bounds),
    "Sigmoid": _simple("Sigmoid"),
    "Tanh": _simple("TanH"),
    "HardSwish": _simple("HardSwish", _hard),
    "HardSigmoid": _simple("HardSigmoid", _hard),
    "Softmax": _simple("Softmax", _softmax),
    "Concat": _concat,
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout"), _shaped),
    "Transpose": _transpose,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "LayerNormalization": _layer_norm,
    "PRelu": _prelu,
    "Resize": _resize,
}
"""What is written, by ONNX operator."""
