"""Convolutions, in int8 where both input and weight are quantized.

With only one of them quantized, a layer runs in float on values that are already rounded.

ncnn stores one weight scale per output channel, but one per group where there are groups. A
grouped convolution with several scales in a group is written as one convolution for each group,
which is also how ncnn computes a grouped one:

    Slice      the channels of each group
    Convolution, one per group, each with its scales per output channel
    Concat     their outputs
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of
from onnxq.ncnn.network import Network, NotInNcnn, inverse, layer_name
from onnxq.ncnn.planes import integers, plane, result, windows
from onnxq.ncnn.program import Value
from onnxq.operators.sliding_windows import Windows
from onnxq.quant.qparams import Array, QParams


def steps_of(params: QParams, axis: int, channels: int) -> Array:
    """One step per output channel of a quantized weight, whose channels lie along `axis`."""
    if params.axis not in (None, axis):
        raise NotInNcnn(
            f"the scales of '{params.tensor}' lie along axis {params.axis}, not along its outputs"
        )
    return np.broadcast_to(params.scale.reshape(-1), (channels,))


def _window_settings(places: Windows) -> dict[int, Value]:
    (rows, columns), (down, right) = places.kernel, places.strides
    (top, left), (bottom, end) = places.begins, places.padding
    settings: dict[int, Value] = {1: columns, 11: rows, 3: right, 13: down}
    settings |= {2: places.dilations[1], 12: places.dilations[0]}
    return settings | {4: left, 14: top, 15: end, 16: bottom}


def conv(net: Network, node: gs.Node) -> None:
    """Convolution over one or two axes."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    values, params = net.weight(w)
    bias = None if b is None else net.real(b)
    shape, group, outputs = net.shape(x), int(node.attrs.get("group", 1)), values.shape[0]
    if values.ndim - 2 not in (1, 2) or len(shape) != values.ndim - 1:
        raise NotInNcnn(
            f"it is a convolution over {values.ndim - 2} axes; ncnn's int8 ones are over 1 or 2"
        )
    window = _window_settings(windows(node, shape[1:], values.shape[2:]))
    quantized = net.quantized(x) if params is not None else None
    if quantized is None or params is None:
        blob, scales = net.blob(x), None
        values = values if params is None else params.fake(values)
    else:
        blob = quantized[0]
        scales = steps_of(params, 0, outputs), inverse(quantized[1].scale)
        values = params.quantize(values).astype(np.int8)
    bottom = plane(net, node, blob, shape)
    top, finish = result(net, node)
    several = scales is not None and group > 1 and not _one_each(scales[0], group)
    if scales is not None and several:
        channels = shape[0] // group
        inner = [net.temporary(f"{bottom}.group_{i}") for i in range(group)]
        made = [net.temporary(f"{top}.group_{i}") for i in range(group)]
        cuts: dict[int, Value] = {0: (channels,) * group, 1: 0}
        net.add("Slice", f"{layer_name(node)}.groups", [bottom], inner, cuts)
        for i in range(group):
            part = slice(i * outputs // group, (i + 1) * outputs // group)
            _layer(
                *(net, f"{layer_name(node)}.group_{i}", inner[i], made[i], window, values[part]),
                None if bias is None else bias[part],
                *(1, (scales[0][part], scales[1])),
            )
        net.add("Concat", f"{layer_name(node)}.join", made, [top], {0: 0})
    else:
        _layer(net, layer_name(node), bottom, top, window, values, bias, group, scales)
    finish()


def _one_each(steps: Array, group: int) -> bool:
    """Whether all channels of a group have the same step."""
    each = steps.reshape(group, -1)
    return bool((each == each[:, :1]).all())


def _layer(
    net: Network,
    name: str,
    bottom: str,
    top: str,
    window: dict[int, Value],
    values: Array,
    bias: Array | None,
    group: int,
    scales: tuple[Array, Array] | None,
) -> None:
    """One layer; `scales`: steps per output channel, and the inverse of the input's step."""
    settings: dict[int, Value] = {0: values.shape[0], **window}
    settings |= {5: int(bias is not None), 6: values.size}
    if group > 1:
        settings[7] = group
    weights: list[Array] = [values, *([] if bias is None else [bias])]
    if scales is not None:
        steps, given = scales
        settings[8] = 1 if group > 1 else 2
        weights += [inverse(steps.reshape(group, -1)[:, 0] if group > 1 else steps), given]
    kind = "Convolution" if group == 1 else "ConvolutionDepthWise"
    net.add(kind, name, [bottom], [top], settings, weights)


def conv_transpose(net: Network, node: gs.Node) -> None:
    """In float: ncnn has no int8 form of it."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    values, shape = net.real(w), net.shape(x)
    group, explicit = int(node.attrs.get("group", 1)), node.attrs.get("auto_pad", "NOTSET")
    if values.ndim not in (3, 4) or len(shape) != values.ndim - 1:
        raise NotInNcnn(f"it is a convolution over {values.ndim - 2} axes, not 1 or 2")
    if "output_shape" in node.attrs or explicit not in ("NOTSET", "VALID"):
        raise NotInNcnn(
            "its pads follow from a wanted shape (output_shape or auto_pad)",
            "state its pads as the attribute 'pads' instead of auto_pad or output_shape",
        )
    window = _window_settings(windows(node, shape[1:], values.shape[2:]))
    extra = [0, *integers(node, "output_padding", [0] * (values.ndim - 2))]
    bias = None if b is None else net.real(b)
    # ONNX stores (inputs, outputs of a group, ...), ncnn the outputs of all groups first.
    grouped = values.reshape(group, -1, *values.shape[1:])
    stored = np.ascontiguousarray(grouped.swapaxes(1, 2))
    outputs = group * values.shape[1]
    settings: dict[int, Value] = {0: outputs, **window, 18: extra[-1], 19: extra[-2]}
    settings |= {5: int(bias is not None), 6: values.size}
    if group > 1:
        settings[7] = group
    bottom = plane(net, node, net.blob(x), shape)
    top, finish = result(net, node)
    kind = "Deconvolution" if group == 1 else "DeconvolutionDepthWise"
    weights = [stored, *([] if bias is None else [bias])]
    net.add(kind, layer_name(node), [bottom], [top], settings, weights)
    finish()
