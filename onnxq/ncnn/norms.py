"""Normalisation, reductions and Softmax: what computes over one or more axes."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of
from onnxq.graph.constants import array
from onnxq.ncnn.moves import along
from onnxq.ncnn.network import Network, NotInNcnn, layer_name
from onnxq.ncnn.program import Value
from onnxq.quant.qparams import Array

REDUCTIONS = {"ReduceSum": 0, "ReduceMean": 3, "ReduceMax": 4, "ReduceMin": 5} | {
    "ReduceL1": 7,
    "ReduceL2": 8,
}
"""Reduction's numbers."""


def softmax(net: Network, node: gs.Node) -> dict[int, Value]:
    """The axis; before opset 13 only where it is the last one."""
    axis = along(net, node, -1 if net.model.opset >= 13 else 1)
    if net.model.opset < 13 and axis != len(net.shape(node.inputs[0])) - 1:
        raise NotInNcnn(
            "before opset 13 it normalises all axes from the given one on",
            "export with opset 13 or newer",
        )
    return {0: axis, 1: 1}


def _vector(net: Network, tensor: gs.Tensor, size: int) -> Array:
    """A constant with one value for each of `size` elements."""
    values = net.real(tensor)
    if values.shape != (size,):
        raise NotInNcnn(
            f"'{tensor.name}' has shape {values.shape}, and its input needs {size} values",
            "repair the model: onnxruntime refuses this node too",
        )
    return values


def layer_norm(net: Network, node: gs.Node) -> None:
    """Over the last axis."""
    x, gain, shift = inputs_of(node, 3)
    assert x is not None
    shape = net.shape(x)
    if along(net, node, -1) != len(shape) - 1 or len([t for t in node.outputs if t.name]) > 1:
        raise NotInNcnn("it normalises more than the last axis", "flatten these axes before it")
    scale = np.ones(shape[-1], np.float32) if gain is None else _vector(net, gain, shape[-1])
    offset = np.zeros(shape[-1], np.float32) if shift is None else _vector(net, shift, shape[-1])
    settings: dict[int, Value] = {0: shape[-1], 1: float(node.attrs.get("epsilon", 1e-5)), 2: 1}
    bottom, top = net.blob(x), net.made(node.outputs[0])
    net.add("LayerNorm", layer_name(node), [bottom], [top], settings, [scale, offset])


def batch_norm(net: Network, node: gs.Node) -> None:
    """y = (x - mean) / sqrt(variance + epsilon) * gain + shift, for each channel."""
    x, gain, shift, mean, variance = inputs_of(node, 5)
    assert x is not None
    if node.attrs.get("training_mode", 0) or len([t for t in node.outputs if t.name]) > 1:
        raise NotInNcnn("it is in training mode", "export the model in evaluation mode")
    channels, weights = net.shape(x)[0], []
    for tensor in (gain, mean, variance, shift):  # in the order of ncnn
        assert tensor is not None
        weights.append(_vector(net, tensor, channels))
    settings: dict[int, Value] = {0: channels, 1: float(node.attrs.get("epsilon", 1e-5))}
    bottom, top = net.blob(x), net.made(node.outputs[0])
    net.add("BatchNorm", layer_name(node), [bottom], [top], settings, weights)


def instance_norm(net: Network, node: gs.Node) -> None:
    """The same with the mean and variance of the input's own positions."""
    x, gain, shift = node.inputs
    shape = net.shape(x)
    if len(shape) != 3:
        raise NotInNcnn("its input has other axes than channels, height and width")
    settings: dict[int, Value] = {0: shape[0], 1: float(node.attrs.get("epsilon", 1e-5)), 2: 1}
    bottom, top = net.blob(x), net.made(node.outputs[0])
    weights = [_vector(net, t, shape[0]) for t in (gain, shift)]
    net.add("InstanceNorm", layer_name(node), [bottom], [top], settings, weights)


def reduction(net: Network, node: gs.Node) -> None:
    """Over any axes but the batch; the result has axes of size 1, and then its own shape."""
    x, given = inputs_of(node, 2)
    assert x is not None
    shape = net.shape(x)
    stated = node.attrs.get("axes") if given is None else array(given)
    if given is not None and stated is None:
        raise NotInNcnn("its axes are computed at run time", "use constants")
    none_means_all = not node.attrs.get("noop_with_empty_axes", 0)
    axes = [] if stated is None else [int(a) % (len(shape) + 1) for a in np.asarray(stated)]
    axes = axes or (list(range(len(shape) + 1)) if none_means_all else [])
    inner = tuple(sorted(a - 1 for a in axes if a))
    if not inner or (0 in axes and not node.attrs.get("keepdims", 1)):
        raise NotInNcnn(
            "it reduces the batch or nothing",
            "reduce axes after the batch, or keep them (keepdims)",
        )
    kept = tuple(1 if i in inner else d for i, d in enumerate(shape))
    settings: dict[int, Value] = {0: REDUCTIONS[node.op], 1: 0, 3: inner, 4: 1, 5: 1}
    bottom, wanted = net.blob(x), net.shape(node.outputs[0])
    top = net.made(node.outputs[0])
    made = top if wanted == kept else net.temporary(f"{top}.kept")
    net.add("Reduction", layer_name(node), [bottom], [made], settings)
    if made != top:
        net.reshape(f"{layer_name(node)}.shape", made, wanted, top)
