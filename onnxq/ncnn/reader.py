"""Reads ncnn's .param and .bin files back into a canonical graph.

Only the layers that the writer makes are read. A layer of another type, or parameters that it never
writes, are rejected by name. Steps are the inverse of the stored scales, so they are right to one
float32 ulp; if a tensor is rounded by layers of its own, the step is stored as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxq.canonical.fake_quantize import DOMAIN, OP
from onnxq.errors import LoadError
from onnxq.graph import Model, from_proto
from onnxq.ncnn.layer_forms import Form, check_form, check_sizes
from onnxq.ncnn.network import CODES, MULTIPLY
from onnxq.ncnn.program import ARITHMETIC, ORDERS, Layer, read_bin, read_param
from onnxq.quant.qparams import Array
from onnxq.side_files.side_file import Content

OPSET = 17
"""The first with LayerNormalization."""
_ARITHMETIC = {reverse: (op, True) for op, (_, reverse) in ARITHMETIC.items()}
_ARITHMETIC |= {number: (op, False) for op, (number, _) in ARITHMETIC.items()}
"""The operators of BinaryOp's numbers, and whether the operands are exchanged."""
_PERMS = {number: order for order, number in ORDERS.items()}


def read(files: Mapping[str, Content]) -> Model:
    """The model in both files: inverse of `onnxq.ncnn.writer.write`."""
    param, data = files["param"], files["bin"]
    if not isinstance(param, str) or not isinstance(data, bytes):
        raise LoadError("the .param file is text and the .bin file is bytes", fix="give both files")
    return model_of(read_bin(data, read_param(param)))


def model_of(layers: list[Layer]) -> Model:
    """The canonical graph of a list of layers."""
    graph = _Graph()
    read_blobs = {blob for layer in layers for blob in layer.bottoms}
    for layer in layers:
        if layer.type not in LAYERS:
            raise layer.error("layers of this type are not supported")
        form, translate = LAYERS[layer.type]
        check_form(layer, form)
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
        """Blobs of codes: the tensor that was rounded, and the stored scale."""

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

    def compute(
        self, op: str, layer: Layer, *constants: str, rank: int | None = None, **attrs: Any
    ) -> None:
        """Add the node for `layer`; the rank of its output is that of its input unless given."""
        operands = [*map(self.name, layer.bottoms), *constants]
        self.node(op, operands, layer.tops[0], layer.name, **attrs)
        self.rank[layer.tops[0]] = self.rank[layer.bottoms[0]] if rank is None else rank

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
    """The tensor to multiply and the weight, both after quantizers if the layer is int8."""
    source, stored = graph.name(layer.bottoms[0]), layer.weights[0]
    name = f"{layer.name}.weight"
    if stored.dtype != np.int8 and layer.integer(8, 0):
        raise layer.error("it has scales, but its weights are not int8")
    if stored.dtype != np.int8:
        values = stored.reshape(shape)
        return source, graph.constant(name, values if axis == 0 else values.swapaxes(0, 1))
    if not layer.integer(8, 0):
        raise layer.error("its weights are int8, but it has no scales")
    if (stored < CODES[0]).any():
        raise layer.error(f"its weights contain codes below {CODES[0]}")
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


def _conv(graph: _Graph, layer: Layer) -> None:
    outputs, group = layer.integer(0), layer.integer(7, 1)
    rows, columns = layer.integer(11), layer.integer(1)
    if min(outputs, group, rows, columns) < 1:
        raise layer.error("its outputs, groups or kernel are not positive")
    inner, rest = divmod(layer.integer(6), outputs * rows * columns)
    if rest or inner < 1 or outputs % group:
        raise layer.error("the size of its weights does not match its kernel")
    shape = (outputs, inner, rows, columns)
    back = layer.type == "Deconvolution"
    source, weight = _kernel(graph, layer, shape, 1 if back else 0)
    i = layer.integer
    window: dict[str, Any] = {
        "kernel_shape": [rows, columns],
        "strides": [i(13), i(3)],
        "dilations": [i(12), i(2)],
        "pads": [i(14), i(4), i(16), i(15)],
    }
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
        raise layer.error("the size of its weights is not a multiple of its outputs")
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
        raise layer.error(f"it has {layer.weights[0].size} scales, not one")
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
        raise layer.error(f"operation {number} is not supported")
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
    graph.compute("Reshape", layer, wanted, rank=1 + len(shape))


def _pooling(graph: _Graph, layer: Layer) -> None:
    top = layer.tops[0]
    kind = "AveragePool" if layer.integer(0, 0) else "MaxPool"
    if layer.integer(4, 0):
        source = graph.name(layer.bottoms[0])
        graph.node(f"Global{kind}", [source], f"{layer.name}.pooled", layer.name)
        graph.node("Flatten", [f"{layer.name}.pooled"], top, f"{layer.name}.flatten")
        graph.rank[top] = 2
        return
    i = layer.integer
    if i(5, 0) != 1:
        raise layer.error("only pools that round down (5=1) are supported")
    window: dict[str, Any] = {
        "kernel_shape": [i(11), i(1)],
        "strides": [i(12), i(2)],
        "pads": [i(13), i(3), i(15), i(14)],
    }
    if kind == "AveragePool":
        window["count_include_pad"] = i(6, 0)
    elif i(6, 0):
        raise layer.error("it takes a maximum, but counts pads as an average does")
    graph.compute(kind, layer, rank=4, **window)


def _permute(graph: _Graph, layer: Layer) -> None:
    rank, number = graph.rank[layer.bottoms[0]], layer.integer(0, 0)
    perm: tuple[int, ...]
    if rank == 4 and number in _PERMS:
        perm = _PERMS[number]
    elif rank == 3 and number in (0, 1):
        perm = (1, 0) if number else (0, 1)
    else:
        raise layer.error(f"order {number} of {rank - 1} axes is not supported")
    graph.compute("Transpose", layer, perm=[0, *(p + 1 for p in perm)])


def _clip(graph: _Graph, layer: Layer) -> None:
    largest = float(np.finfo(np.float32).max)
    ends = (layer.number(0, -largest), layer.number(1, largest))
    bounds = [
        graph.constant(f"{layer.name}.{end}", np.asarray(value, np.float32))
        for end, value in zip(("min", "max"), ends, strict=True)
    ]
    graph.compute("Clip", layer, *bounds)


def _layer_norm(graph: _Graph, layer: Layer) -> None:
    if len(layer.weights) != 2:
        raise layer.error("it has no gain and shift, which is not supported")
    names = [
        graph.constant(f"{layer.name}.{what}", value)
        for what, value in zip(("gain", "shift"), layer.weights, strict=True)
    ]
    graph.compute("LayerNormalization", layer, *names, epsilon=layer.number(1, 1e-3))


def _prelu(graph: _Graph, layer: Layer) -> None:
    rank = graph.rank[layer.bottoms[0]]
    slope = graph.constant(f"{layer.name}.slope", layer.weights[0].reshape(-1, *[1] * (rank - 2)))
    graph.compute("PRelu", layer, slope)


def _interp(graph: _Graph, layer: Layer) -> None:
    if layer.integer(0, 0) != 1:
        raise layer.error("only nearest neighbours (0=1) are supported")
    factors = np.array([1, 1, layer.number(1, 1.0), layer.number(2, 1.0)], np.float32)
    if not (factors > 0).all():
        raise layer.error("its factors are not positive")
    scales = graph.constant(f"{layer.name}.scales", factors)
    rules: dict[str, Any] = {"mode": "nearest", "nearest_mode": "floor"}
    rules["coordinate_transformation_mode"] = "asymmetric"
    graph.compute("Resize", layer, "", scales, **rules)


def _softmax(graph: _Graph, layer: Layer) -> None:
    if layer.integer(1, 0) != 1:
        raise layer.error("only axes counted from the first (1=1) are supported")
    graph.compute("Softmax", layer, axis=layer.integer(0, 0) + 1)


def _same(op: str, attrs: Callable[[Layer], dict[str, Any]] = lambda layer: {}) -> _Reader:
    """The reader of a layer that one ONNX operator computes, with output and input of one rank."""
    return lambda graph, layer: graph.compute(op, layer, **attrs(layer))


def _hard(layer: Layer) -> dict[str, Any]:
    return {"alpha": layer.number(0, 0.2), "beta": layer.number(1, 0.5)}


def _hard_swish(graph: _Graph, layer: Layer) -> None:
    gate = f"{layer.name}.gate"
    graph.node("HardSigmoid", [graph.name(layer.bottoms[0])], gate, gate, **_hard(layer))
    graph.compute("Mul", layer, gate)


def _relu(graph: _Graph, layer: Layer) -> None:
    slope = layer.number(0, 0.0)
    if slope:
        graph.compute("LeakyRelu", layer, alpha=slope)
    else:
        graph.compute("Relu", layer)


_MANY = 1 << 16
_WINDOW = {0, 1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}

LAYERS: dict[str, tuple[Form, _Reader]] = {
    "Input": (Form({0, 1, 2}, (0, 0)), _input),
    "Convolution": (Form({*_WINDOW, 8}, flags=(5,), int8=2), _conv),
    "ConvolutionDepthWise": (Form({*_WINDOW, 7, 8}, flags=(5,), int8=1), _conv),
    "Deconvolution": (Form({*_WINDOW, 18, 19}, flags=(5,)), _conv),
    "InnerProduct": (Form({0, 1, 2, 8}, flags=(1,), int8=2), _inner_product),
    "Split": (Form(set(), tops=(1, _MANY)), _split),
    "Quantize": (Form({0}), _quantize),
    "Cast": (Form({0, 1}), _cast),
    "BinaryOp": (Form({0, 1, 2}, (1, 2), flags=(1,)), _binary),
    "MemoryData": (Form({0, 1, 2}, (0, 0)), _memory),
    "Reshape": (Form({0, 1, 2}), _reshape),
    "Pooling": (Form(_WINDOW - {16}, flags=(0, 4, 5, 6)), _pooling),
    "Permute": (Form({0}), _permute),
    "Clip": (Form({0, 1}), _clip),
    "LayerNorm": (Form({0, 1, 2}, flags=(2,)), _layer_norm),
    "PReLU": (Form({0}), _prelu),
    "Interp": (Form({0, 1, 2, 3, 4}), _interp),
    "ReLU": (Form({0}), _relu),
    "HardSwish": (Form({0, 1}), _hard_swish),
    "HardSigmoid": (Form({0, 1}), _same("HardSigmoid", _hard)),
    "Sigmoid": (Form(set()), _same("Sigmoid")),
    "TanH": (Form(set()), _same("Tanh")),
    "MatMul": (Form(set(), (2, 2)), _same("MatMul")),
    "Concat": (
        Form({0}, (1, _MANY)),
        _same("Concat", lambda layer: {"axis": layer.integer(0, 0) + 1}),
    ),
    "Softmax": (Form({0, 1}, flags=(1,)), _softmax),
}
"""The types of layers that are read: the form of each, and its reader."""
