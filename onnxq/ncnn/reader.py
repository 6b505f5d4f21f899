"""From ncnn's .param and .bin back to a canonical graph: what the files say, as ONNX.

Only what the writer makes is read; a layer of another type, or parameters that it never writes,
are refused by name. Steps are the inverse of the stored scales, so they are right to one float32
ulp; where a tensor is rounded by layers of its own, the step is stored as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxq.canonical.fake_quantize import DOMAIN, OP
from onnxq.errors import LoadError
from onnxq.graph import Model, from_proto
from onnxq.ncnn.layer_forms import check_form, check_sizes
from onnxq.ncnn.network import CODES, MULTIPLY
from onnxq.ncnn.program import WITH_KERNEL, Layer, read_bin, read_param
from onnxq.quant.qparams import Array
from onnxq.side_files.side_file import Content

OPSET = 17
"""The first with LayerNormalization."""
_ARITHMETIC = {0: ("Add", False), 1: ("Sub", False), 2: ("Mul", False), 3: ("Div", False)} | {
    7: ("Sub", True),
    8: ("Div", True),
}
_PERMS = {0: (0, 1, 2), 1: (0, 2, 1), 2: (1, 0, 2), 3: (1, 2, 0), 4: (2, 0, 1), 5: (2, 1, 0)}


def read(files: Mapping[str, Content]) -> Model:
    """The model of both files: inverse of `onnxq.ncnn.writer.write`."""
    param, data = files["param"], files["bin"]
    if not isinstance(param, str) or not isinstance(data, bytes):
        raise LoadError("the .param file is text and the .bin file is bytes", fix="give both files")
    return model_of(read_bin(data, read_param(param)))


def model_of(layers: list[Layer]) -> Model:
    """The canonical graph of a list of layers."""
    graph = _Graph()
    read_blobs = {blob for layer in layers for blob in layer.bottoms}
    for layer in layers:
        translate = _READERS.get(layer.type)
        if translate is None:
            raise layer.error("a layer of this type is not read")
        check_form(layer)
        translate(graph, layer)
    for layer in layers:
        for blob in layer.tops:
            if blob not in read_blobs:
                shape = [None] * graph.rank[blob]
                info = helper.make_tensor_value_info(graph.name(blob), TensorProto.FLOAT, shape)
                graph.proto.output.append(info)
    proto = ModelProto(ir_version=8, graph=graph.proto)
    proto.opset_import.extend([helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)])
    model = from_proto(proto)
    check_sizes(model, {layer.tops[0]: layer for layer in layers if layer.type == "Interp"})
    return model


class _Graph:
    """Nodes so far, and how many axes each blob has, the batch included."""

    def __init__(self) -> None:
        self.proto = GraphProto(name="ncnn")
        self.rank: dict[str, int] = {}
        self._alias: dict[str, str] = {}
        self.codes: dict[str, tuple[str, float]] = {}
        """Blobs of codes: what was rounded, and the stored scale."""

    def name(self, blob: str) -> str:
        return self._alias.get(blob, blob)

    def alias(self, blob: str, source: str) -> None:
        self._alias[blob], self.rank[blob] = self.name(source), self.rank[source]

    def constant(self, name: str, value: Array) -> str:
        self.proto.initializer.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op: str, inputs: list[str], output: str, name: str = "", **attrs: Any) -> None:
        made: NodeProto = helper.make_node(op, inputs, [output], name, **attrs)
        self.proto.node.append(made)

    def fake(self, source: str, output: str, steps: Array, axis: int | None = None) -> None:
        scale = self.constant(f"{output}.scale", steps.astype(np.float32))
        zero = self.constant(f"{output}.zero_point", np.zeros(steps.shape, np.int8))
        attrs: dict[str, Any] = {"quant_min": CODES[0], "quant_max": CODES[1]}
        if axis is not None:
            attrs["axis"] = axis
        self.node(OP, [source, scale, zero], output, f"{output}.quantizer", domain=DOMAIN, **attrs)


_Reader = Callable[[_Graph, Layer], None]


def _step(layer: Layer, scales: Array) -> Array:
    """The steps of stored scales."""
    if not (scales > 0).all():
        raise layer.error("a scale is not positive")
    with np.errstate(over="ignore"):
        steps = (1.0 / scales.astype(np.float64)).astype(np.float32)
        if not np.isfinite(steps * np.float32(CODES[1])).all():
            raise layer.error("a scale is so small that its codes have no value in float32")
    return steps


def _input(graph: _Graph, layer: Layer) -> None:
    shape = _shape(layer)
    (top,) = layer.tops
    graph.proto.input.append(helper.make_tensor_value_info(top, TensorProto.FLOAT, [1, *shape]))
    graph.rank[top] = 1 + len(shape)


def _shape(layer: Layer) -> list[int]:
    count = sum(key in layer.params for key in (0, 1, 2))
    found = [layer.integer(key) for key in reversed(range(count))]
    if not found or min(found) < 1:
        raise layer.error(f"{found} is not a shape")
    return found


def _kernel(graph: _Graph, layer: Layer, shape: tuple[int, ...], axis: int) -> tuple[str, str]:
    """The tensor to multiply and the weight, both behind quantizers where the layer has int8."""
    source, stored = graph.name(layer.bottoms[0]), layer.weights[0]
    name, group = f"{layer.name}.weight", layer.integer(7, 1)
    if stored.dtype != np.int8 and layer.integer(8, 0):
        raise layer.error("it has scales, but its weights are not int8")
    if stored.dtype != np.int8:
        if axis == 0:
            return source, graph.constant(name, stored.reshape(shape))
        each = stored.reshape(group, -1, *shape[1:]).swapaxes(1, 2)  # inputs come first in ONNX
        return source, graph.constant(name, each.reshape(-1, *each.shape[2:]))
    if not layer.integer(8, 0):
        raise layer.error("its weights are int8, but it has no scales")
    if (stored < CODES[0]).any():
        raise layer.error(f"its weights hold codes below {CODES[0]}")
    steps, step = (_step(layer, w) for w in layer.weights[-2:])
    steps = np.repeat(steps, shape[0] // steps.size)
    values = stored.reshape(shape) * steps.reshape(-1, *[1] * (len(shape) - 1))
    values = values if axis == 0 else np.ascontiguousarray(values.swapaxes(0, 1))
    graph.constant(f"{name}.stored", values.astype(np.float32))
    graph.fake(f"{name}.stored", name, steps, axis)
    graph.fake(source, f"{layer.name}.input", step.reshape(()))
    return f"{layer.name}.input", name


def _bias(graph: _Graph, layer: Layer, key: int) -> list[str]:
    if not layer.integer(key, 0):
        return []
    return [graph.constant(f"{layer.name}.bias", layer.weights[1])]


def _window(layer: Layer) -> dict[str, list[int]]:
    i = layer.integer
    return {
        "kernel_shape": [i(11), i(1)],
        "strides": [i(13), i(3)],
        "dilations": [i(12), i(2)],
        "pads": [i(14), i(4), i(16), i(15)],
    }


def _conv(graph: _Graph, layer: Layer) -> None:
    outputs, group = layer.integer(0), layer.integer(7, 1)
    rows, columns = layer.integer(11), layer.integer(1)
    if min(outputs, group, rows, columns) < 1:
        raise layer.error("its outputs, groups or kernel are not positive")
    inner, rest = divmod(layer.integer(6), outputs * rows * columns)
    if rest or inner < 1 or outputs % group:
        raise layer.error("the size of its weights does not fit its kernel")
    shape = (outputs, inner, rows, columns)
    back = layer.type.startswith("Deconvolution")
    source, weight = _kernel(graph, layer, shape, 1 if back else 0)
    window: dict[str, Any] = dict(_window(layer))
    if back:
        window["output_padding"] = [layer.integer(19, 0), layer.integer(18, 0)]
    operands = [source, weight, *_bias(graph, layer, 5)]
    op = "ConvTranspose" if back else "Conv"
    graph.node(op, operands, layer.tops[0], layer.name, group=group, **window)
    graph.rank[layer.tops[0]] = 4


def _inner_product(graph: _Graph, layer: Layer) -> None:
    outputs = layer.integer(0)
    if outputs < 1:
        raise layer.error(f"it has {outputs} outputs")
    inner, rest = divmod(layer.integer(2), outputs)
    if rest or inner < 1:
        raise layer.error("the size of its weights is no multiple of its outputs")
    source, weight = _kernel(graph, layer, (outputs, inner), 1)
    bias = _bias(graph, layer, 1)
    top = layer.tops[0]
    graph.node("MatMul", [source, weight], f"{layer.name}.sum" if bias else top, layer.name)
    if bias:
        graph.node("Add", [f"{layer.name}.sum", *bias], top, f"{layer.name}.add")
    graph.rank[top] = graph.rank[layer.bottoms[0]]


def _split(graph: _Graph, layer: Layer) -> None:
    for top in layer.tops:
        graph.alias(top, layer.bottoms[0])


def _quantize(graph: _Graph, layer: Layer) -> None:
    (top,), (bottom,) = layer.tops, layer.bottoms
    if layer.weights[0].size != 1:
        raise layer.error(f"{layer.weights[0].size} scales, and one is read")
    graph.rank[top] = graph.rank[bottom]
    graph.codes[top] = graph.name(bottom), float(layer.weights[0][0])


def _cast(graph: _Graph, layer: Layer) -> None:
    (top,), (bottom,) = layer.tops, layer.bottoms
    if bottom not in graph.codes or (layer.params.get(0), layer.params.get(1)) != (3, 1):
        raise layer.error("it does not turn codes into real numbers")
    graph.rank[top] = graph.rank[bottom]
    graph.codes[top] = graph.codes[bottom]


def _binary(graph: _Graph, layer: Layer) -> None:
    number, (top,) = layer.integer(0, 0), layer.tops
    if number not in _ARITHMETIC:
        raise layer.error(f"operation {number} is not read")
    op, turned = _ARITHMETIC[number]
    first = layer.bottoms[0]
    graph.rank[top] = max(graph.rank[b] for b in layer.bottoms)
    if first in graph.codes:
        source, scale = graph.codes[first]
        step = np.float32(layer.number(2, 0.0))
        if number != MULTIPLY or not layer.integer(1, 0) or abs(step * scale - 1) > 1e-6:
            raise layer.error("it does not multiply codes with the step they were made with")
        graph.fake(source, top, np.asarray(step))
        return
    operands = [graph.name(b) for b in layer.bottoms]
    if layer.integer(1, 0):
        value = np.float32(layer.number(2, 0.0))
        operands.append(graph.constant(f"{layer.name}.operand", np.asarray(value)))
    graph.node(op, operands[::-1] if turned else operands, top, layer.name)


def _memory(graph: _Graph, layer: Layer) -> None:
    shape = _shape(layer)
    graph.constant(layer.tops[0], layer.weights[0].reshape(1, *shape))
    graph.rank[layer.tops[0]] = 1 + len(shape)


def _reshape(graph: _Graph, layer: Layer) -> None:
    shape = _shape(layer)
    wanted = graph.constant(f"{layer.name}.shape", np.array([1, *shape], np.int64))
    graph.node("Reshape", [graph.name(layer.bottoms[0]), wanted], layer.tops[0], layer.name)
    graph.rank[layer.tops[0]] = 1 + len(shape)


def _pooling(graph: _Graph, layer: Layer) -> None:
    source, (top,) = graph.name(layer.bottoms[0]), layer.tops
    kind = "AveragePool" if layer.integer(0, 0) else "MaxPool"
    if layer.integer(4, 0):
        graph.node(f"Global{kind}", [source], f"{layer.name}.pooled", layer.name)
        graph.node("Flatten", [f"{layer.name}.pooled"], top, f"{layer.name}.flatten")
        graph.rank[top] = 2
        return
    i = layer.integer
    if i(5, 0) != 1:
        raise layer.error("only pools that round down (5=1) are read")
    window: dict[str, Any] = {
        "kernel_shape": [i(11), i(1)],
        "strides": [i(12), i(2)],
        "pads": [i(13), i(3), i(15), i(14)],
    }
    if kind == "AveragePool":
        window["count_include_pad"] = i(6, 0)
    elif i(6, 0):
        raise layer.error("it counts pads in an average and takes a maximum")
    graph.node(kind, [source], top, layer.name, **window)
    graph.rank[top] = 4


def _permute(graph: _Graph, layer: Layer) -> None:
    rank, number = graph.rank[layer.bottoms[0]], layer.integer(0, 0)
    perm: tuple[int, ...]
    if rank == 4 and number in _PERMS:
        perm = _PERMS[number]
    elif rank == 3 and number in (0, 1):
        perm = (1, 0) if number else (0, 1)
    else:
        raise layer.error(f"order {number} of {rank - 1} axes is not read")
    moved = [0, *(p + 1 for p in perm)]
    graph.node("Transpose", [graph.name(layer.bottoms[0])], layer.tops[0], layer.name, perm=moved)
    graph.rank[layer.tops[0]] = rank


def _clip(graph: _Graph, layer: Layer) -> None:
    largest = float(np.finfo(np.float32).max)
    ends = (layer.number(0, -largest), layer.number(1, largest))
    bounds = [
        graph.constant(f"{layer.name}.{end}", np.asarray(value, np.float32))
        for end, value in zip(("min", "max"), ends, strict=True)
    ]
    graph.node("Clip", [graph.name(layer.bottoms[0]), *bounds], layer.tops[0], layer.name)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def _layer_norm(graph: _Graph, layer: Layer) -> None:
    if len(layer.weights) != 2:
        raise layer.error("one without gain and shift is not read")
    names = [
        graph.constant(f"{layer.name}.{what}", value)
        for what, value in zip(("gain", "shift"), layer.weights, strict=True)
    ]
    operands = [graph.name(layer.bottoms[0]), *names]
    epsilon = layer.number(1, 1e-3)
    graph.node("LayerNormalization", operands, layer.tops[0], layer.name, epsilon=epsilon)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def _prelu(graph: _Graph, layer: Layer) -> None:
    rank = graph.rank[layer.bottoms[0]]
    slope = graph.constant(f"{layer.name}.slope", layer.weights[0].reshape(-1, *[1] * (rank - 2)))
    graph.node("PRelu", [graph.name(layer.bottoms[0]), slope], layer.tops[0], layer.name)
    graph.rank[layer.tops[0]] = rank


def _interp(graph: _Graph, layer: Layer) -> None:
    if layer.integer(0, 0) != 1:
        raise layer.error("only nearest neighbours (0=1) are read")
    factors = np.array([1, 1, layer.number(1, 1.0), layer.number(2, 1.0)], np.float32)
    if not (factors > 0).all():
        raise layer.error("its factors are not positive")
    scales = graph.constant(f"{layer.name}.scales", factors)
    operands = [graph.name(layer.bottoms[0]), "", scales]
    rules = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    graph.node("Resize", operands, layer.tops[0], layer.name, mode="nearest", **rules)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def _softmax(graph: _Graph, layer: Layer) -> None:
    if layer.integer(1, 0) != 1:
        raise layer.error("only axes that count from the first (1=1) are read")
    _same("Softmax", lambda layer: {"axis": layer.integer(0, 0) + 1})(graph, layer)


def _same(op: str, attrs: Callable[[Layer], dict[str, Any]] = lambda layer: {}) -> _Reader:
    """A layer that one ONNX operator computes, on blobs of the shape it gives."""

    def translate(graph: _Graph, layer: Layer) -> None:
        operands = [graph.name(b) for b in layer.bottoms]
        graph.node(op, operands, layer.tops[0], layer.name, **attrs(layer))
        graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]

    return translate


def _hard(layer: Layer) -> dict[str, Any]:
    return {"alpha": layer.number(0, 0.2), "beta": layer.number(1, 0.5)}


def _hard_swish(graph: _Graph, layer: Layer) -> None:
    source, gate = graph.name(layer.bottoms[0]), f"{layer.name}.gate"
    graph.node("HardSigmoid", [source], gate, gate, **_hard(layer))
    graph.node("Mul", [source, gate], layer.tops[0], layer.name)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def _relu(graph: _Graph, layer: Layer) -> None:
    slope = layer.number(0, 0.0)
    translate = _same("LeakyRelu", lambda layer: {"alpha": slope}) if slope else _same("Relu")
    translate(graph, layer)


_READERS: dict[str, _Reader] = {
    "Input": _input,
    **dict.fromkeys(WITH_KERNEL - {"InnerProduct"}, _conv),
    "InnerProduct": _inner_product,
    "Split": _split,
    "Quantize": _quantize,
    "Cast": _cast,
    "BinaryOp": _binary,
    "MemoryData": _memory,
    "Reshape": _reshape,
    "Pooling": _pooling,
    "Permute": _permute,
    "Clip": _clip,
    "LayerNorm": _layer_norm,
    "PReLU": _prelu,
    "Interp": _interp,
    "ReLU": _relu,
    "HardSwish": _hard_swish,
    "HardSigmoid": _same("HardSigmoid", _hard),
    "Sigmoid": _same("Sigmoid"),
    "TanH": _same("Tanh"),
    "MatMul": _same("MatMul"),
    "Concat": _same("Concat", lambda layer: {"axis": layer.integer(0, 0) + 1}),
    "Softmax": _softmax,
}
"""What is read, by type of layer."""
