"""Small float networks of five kinds, and each of them quantized for any backend.

Ranges come from one run on random inputs; quantizers stand where the backend's placement wants
them, with the types its scheme prefers. So every backend is tried on networks made for it. Biases
are float, or lie on the steps of the sums they are added to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import onnx

from onnxq.analysis.quantizer_places import QuantizerPlaces
from onnxq.backend import Backend
from onnxq.graph import Model, from_proto
from onnxq.operators.weight_axis import weight_axis
from onnxq.pipeline import Pipeline
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.scheme import QSpec
from onnxq.running import sessions
from passes.apply_qparams import ApplyQParams
from passes.phases import CLEAN, FOLD
from passes.propagate_ranges import PropagateRanges
from passes.quantize_bias import QuantizeBias
from passes.round_bias import RoundBias
from tests.models.zoo_build import Build

Values = np.ndarray


def _resnet() -> onnx.ModelProto:
    b = Build()
    x = b.op("Relu", b.bn(b.conv(b.input("x", [1, 3, 16, 16]), 3, 8, strides=[2, 2]), 8))
    x = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    for cin, cout, stride in ((8, 8, 1), (8, 16, 2)):
        y = b.op("Relu", b.bn(b.conv(x, cin, cout, strides=[stride, stride]), cout))
        y = b.bn(b.conv(y, cout, cout), cout)
        skip = x
        if stride != 1:
            skip = b.bn(b.conv(x, cin, cout, 1, strides=[2, 2], pads=[0] * 4), cout)
        x = b.op("Relu", b.op("Add", y, skip))
    flat = b.op("Flatten", b.op("GlobalAveragePool", x))
    y = b.op("Gemm", flat, b.weight(16, 10), b.init(b.random(10)), out="y")
    return b.model(y)


def _mobilenet() -> onnx.ModelProto:
    b = Build()
    low, high = b.init(np.float32(0)), b.init(np.float32(6))

    def relu6(x: str) -> str:
        return b.op("Clip", x, low, high)

    x = relu6(b.bn(b.conv(b.input("x", [1, 3, 16, 16]), 3, 8, strides=[2, 2]), 8))
    for cin, cout, stride in ((8, 8, 1), (8, 12, 2), (12, 12, 1)):
        wide = cin * 3
        y = relu6(b.bn(b.conv(x, cin, wide, 1, pads=[0] * 4), wide))
        y = relu6(b.bn(b.conv(y, wide, wide, group=wide, strides=[stride, stride]), wide))
        y = b.bn(b.conv(y, wide, cout, 1, pads=[0] * 4), cout)
        x = b.op("Add", x, y) if stride == 1 and cin == cout else y
    x = relu6(b.conv(x, 12, 24, 1, pads=[0] * 4))
    flat = b.op("Flatten", b.op("GlobalAveragePool", x))
    y = b.op("Gemm", flat, b.weight(24, 10), b.init(b.random(10)), out="y")
    return b.model(y)


def _unet() -> onnx.ModelProto:
    b = Build()

    def block(x: str, cin: int, cout: int) -> str:
        return b.op("Relu", b.bn(b.conv(x, cin, cout), cout))

    first = block(b.input("x", [1, 3, 16, 16]), 3, 8)
    second = block(b.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 8, 16)
    up = b.op(
        "ConvTranspose",
        second,
        b.weight(16, 8, 2, 2),
        b.init(b.random(8)),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    joined = block(b.op("Concat", up, first, axis=1), 16, 8)
    return b.model(b.conv(joined, 8, 2, 1, pads=[0] * 4, out="y"))


def _transformer() -> onnx.ModelProto:
    b = Build()
    width, heads, tokens = 16, 2, 6
    x = b.input("x", [1, tokens, width])

    def norm(t: str) -> str:
        gain, shift = b.init(np.ones(width, np.float32)), b.init(b.random(width, scale=0.1))
        return b.op("LayerNormalization", t, gain, shift, axis=-1)

    def linear(t: str, cin: int, cout: int, out: str | None = None) -> str:
        return b.op("Add", b.op("MatMul", t, b.weight(cin, cout)), b.init(b.random(cout)), out=out)

    n = norm(x)
    q, k, v = (
        b.op(
            "Transpose",
            b.op("Reshape", linear(n, width, width), b.ints(1, tokens, heads, width // heads)),
            perm=[0, 2, 1, 3],
        )
        for _ in range(3)
    )
    score = b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2]))
    share = b.op("Softmax", b.op("Mul", score, b.init(np.float32((width // heads) ** -0.5))))
    mixed = b.op("Transpose", b.op("MatMul", share, v), perm=[0, 2, 1, 3])
    x = b.op("Add", x, linear(b.op("Reshape", mixed, b.ints(1, tokens, width)), width, width))
    hidden = b.op("Relu", linear(norm(x), width, 2 * width))
    x = b.op("Add", x, linear(hidden, 2 * width, width))
    return b.model(linear(x, width, 4, out="y"))


def _conv1d() -> onnx.ModelProto:
    b = Build()
    x = b.input("x", [1, 4, 32])
    for cin, cout, stride in ((4, 8, 1), (8, 8, 2), (8, 12, 2)):
        args = [x, b.weight(cout, cin, 3), b.init(b.random(cout))]
        y = b.op("Conv", *args, kernel_shape=[3], pads=[1, 1], strides=[stride])
        x = b.op("Relu", b.bn(y, cout))
    flat = b.op("Flatten", b.op("GlobalAveragePool", x))
    return b.model(b.op("Gemm", flat, b.weight(12, 5), b.init(b.random(5)), out="y"))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet": _resnet,
    "mobilenet": _mobilenet,
    "unet": _unet,
    "transformer": _transformer,
    "conv1d": _conv1d,
}
"""The networks by name."""


@functools.cache
def _clean(network: str) -> Model:
    return Pipeline(*CLEAN, *FOLD).run(from_proto(NETWORKS[network]())).model


def samples(network: str, count: int = 4, seed: int = 1) -> list[dict[str, Values]]:
    """Random inputs for a network."""
    rng = np.random.default_rng(seed)
    (value,) = NETWORKS[network]().graph.input
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    return [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(count)]


def quantized(network: str, backend: Backend, *, int32_biases: bool = False) -> Model:
    """The network in canonical form, quantized as `backend` prefers; BatchNorm is folded.

    With `int32_biases`, biases are what int32 codes of input scale * weight scale hold, as static
    quantizers for integer kernels write them.
    """
    model = _clean(network).clone()
    places = QuantizerPlaces(model, backend.placement)
    spots = places.activations()
    names = [t.name for spot in spots for t in spot.tensors]
    extremes = _extremes(model, names, samples(network, 8, seed=0))
    table = QParamTable()
    for spot in spots:
        spec = backend.scheme.activation.trained()
        if spot.unsigned:
            spec = spec.unsigned()
        low = min(extremes[t.name][0] for t in spot.tensors)
        high = max(extremes[t.name][1] for t in spot.tensors)
        for tensor in spot.tensors:
            _add(table, tensor.name, spec, np.array(low), np.array(high))
    for node, weight in places.weights():
        if any(row.tensor == weight.name for row in (*table, *table.logarithmic)):
            continue
        values = weight.values
        where = weight_axis(node, values.ndim)
        axis = where.axis if where is not None and backend.scheme.weight.per_channel else None
        over = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
        spec = backend.scheme.weight.trained()
        low, high = values.min(axis=over), values.max(axis=over)
        _add(table, weight.name, spec, low, high, axis=axis, role=Role.WEIGHT)
    model.qparams = table
    # What a pool reads without a quantizer between has the pool's scale, and its bias steps of it.
    biases = (PropagateRanges(), QuantizeBias(), RoundBias()) if int32_biases else ()
    return Pipeline(ApplyQParams(), *biases).run(model).model


def _extremes(
    model: Model, names: list[str], feeds: list[dict[str, Values]]
) -> dict[str, tuple[float, float]]:
    inner = [n for n in names if n != "x"]
    session = sessions.reference(model, taps=inner)
    found: dict[str, tuple[float, float]] = {}
    for feed in feeds:
        values = {**feed, **session.run(feed)}
        for name in names:
            low, high = found.get(name, (0.0, 0.0))
            found[name] = (
                min(low, float(values[name].min())),
                max(high, float(values[name].max())),
            )
    return found


def _add(
    table: QParamTable,
    name: str,
    spec: QSpec,
    low: Values,
    high: Values,
    *,
    axis: int | None = None,
    role: Role = Role.ACTIVATION,
) -> None:
    """Add the grid of `spec` that covers low..high and 0."""
    if spec.logarithmic:
        table.logarithmic.append(LogParams(name, float(max(-low, high, 1e-4)), role))
    else:
        table.add(_params(name, spec, low, high, axis, role))


def _params(
    name: str, spec: QSpec, low: Values, high: Values, axis: int | None, role: Role
) -> QParams:
    lo, hi = spec.range
    low, high = np.minimum(low, 0.0).astype(np.float64), np.maximum(high, 1e-4).astype(np.float64)
    if spec.symmetric:
        scale = np.maximum(high / hi, low / lo if lo else 0.0)
        zero_point = np.zeros_like(scale)
    else:
        scale = (high - low) / (hi - lo)
        zero_point = np.clip(np.rint(lo - low / scale), lo, hi)
    if spec.power_of_two:
        scale = 2.0 ** np.ceil(np.log2(scale))
        zero_point = np.zeros_like(scale)
    return QParams(name, spec.qtype, scale, zero_point, axis=axis, lo=lo, hi=hi, role=role)
