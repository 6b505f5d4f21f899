"""Hypothesis strategies: random float graphs, random QDQ graphs, and arrays to quantize.

Structure is drawn from hypothesis (so that failures shrink); the numbers in weights come from one
drawn seed (so that drawing stays fast).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from hypothesis import strategies as st
from onnx import TensorProto

from tests.models.zoo_build import CODE_RANGE, Build, Floats, channel_scale, tensor_scale

OPSETS = (11, 13, 17, 21)
MAX_CHANNELS = 16
COIN, EIGHT = st.booleans(), st.integers(0, 7)
Shape = tuple[int, int, int, int]


class Weight(NamedTuple):
    """A float weight already in the graph, which a later layer may share."""

    name: str
    value: Floats
    group: int


class Grower:
    """Grows a graph one random node at a time from the NCHW values made so far."""

    def __init__(self, draw: st.DrawFn, quantized: bool) -> None:
        self.draw, self.quantized = draw, quantized
        self.b = Build(draw(st.sampled_from(OPSETS)), seed=draw(st.integers(0, 2**16)))
        size = st.integers(6, 8)
        shape = (draw(st.integers(1, 2)), 4, draw(size), draw(size))
        self.shapes: dict[str, Shape] = {self.b.input("x", shape): shape}
        self.weights: list[Weight] = []
        self.steps: dict[str, Floats] = {}  # scale of each value a per-tensor DQ made
        self.has_if = False

    def often(self) -> bool:
        return self.draw(COIN)

    def rarely(self) -> bool:
        return self.draw(EIGHT) == 7

    def grow(self) -> onnx.ModelProto:
        if self.quantized and self.often():
            self.activation_qdq("x")
        for _ in range(self.draw(st.integers(3, 10))):
            # The newest value is likely, so that chains such as Conv → BN → Relu form.
            names = list(self.shapes)
            x = names[-1] if self.often() else self.draw(st.sampled_from(names))
            y = self.draw(st.sampled_from(NODES))(self, x)
            if self.quantized and self.often():
                self.activation_qdq(y)
        if self.often():
            self.head(list(self.shapes)[-1])
        return self.b.model(*self.outputs())

    def outputs(self) -> list[str]:
        """Every value nobody reads, and sometimes one that is read as well."""
        read = {name for node in self.b.nodes for name in node.input}
        made = [node.output[0] for node in self.b.nodes]
        ends = [name for name in made if name not in read]
        inner = [name for name in self.shapes if name in read and name != "x"]
        if inner and self.rarely():
            ends.append(self.draw(st.sampled_from(inner)))
        return ends

    def add(self, name: str, shape: Shape) -> str:
        self.shapes[name] = shape
        return name

    def const(self, value: npt.ArrayLike) -> str:
        return self.b.constant(value) if self.rarely() else self.b.init(value)

    # Layers: each takes a value and returns the new one

    def conv(self, x: str) -> str:
        n, cin, h, w = self.shapes[x]
        fits = [s for s in self.weights if s.value.ndim == 4 and s.value.shape[1] * s.group == cin]
        if fits and self.rarely():
            name, value, group = self.draw(st.sampled_from(fits))
            kh, kw = value.shape[2:]
            pads = [kh - 1, kw - 1, 0, 0]
        else:
            group = self.draw(st.sampled_from([g for g in (1, 2, cin) if cin % g == 0]))
            cout = group * self.draw(st.integers(1, max(1, 8 // group)))
            kh, kw = self.draw(st.sampled_from(((1, 1), (3, 3), (2, 2), (3, 1))))
            kh, kw = min(kh, h), min(kw, w)
            pads = [self.draw(st.integers(0, k - 1)) for k in (kh, kw, kh, kw)]
            value = self.b.weight_values(cout, cin // group, kh, kw)
            name = self.const(value)
            self.weights.append(Weight(name, value, group))
        strides = [2, 2] if self.rarely() else [1, 1]
        weight, scale = self.weight_qdq(name, value, 0)
        args = [weight, *self.bias(x, value.shape[0], scale)]
        y = self.b.op("Conv", x, *args, pads=pads, group=group, strides=strides)
        hw = [(d + pads[i] + pads[i + 2] - k) // strides[i] + 1
              for i, (d, k) in enumerate(((h, kh), (w, kw)))]  # fmt: skip
        return self.add(y, (n, value.shape[0], hw[0], hw[1]))

    def bias(self, x: str, channels: int, weight_scale: Floats | None) -> list[str]:
        """No bias, a float one, or int32 codes of scale step·scale_w where both are known."""
        if self.often():
            return []
        values = self.b.random(channels)
        if weight_scale is not None and x in self.steps and self.often():
            return [self.b.bias32(values, self.steps[x] * weight_scale)]
        return [self.const(values)]

    def batch_norm(self, x: str) -> str:
        channels = self.shapes[x][1]
        gamma = self.b.rng.uniform(0.5, 1.5, channels)
        if self.often():
            gamma *= self.b.rng.choice([-1.0, 1.0, 1.0, 0.0], channels)
        return self.add(self.b.bn(x, channels, gamma=gamma), self.shapes[x])

    def relu(self, x: str) -> str:
        return self.add(self.b.op("Relu", x), self.shapes[x])

    def identity(self, x: str) -> str:
        return self.add(self.b.op("Identity", x), self.shapes[x])

    def clip(self, x: str) -> str:
        lo = self.const(np.float32(-1)) if self.often() else ""
        return self.add(self.b.op("Clip", x, lo, self.const(np.float32(3))), self.shapes[x])

    def zero_pad(self, x: str) -> str:
        return self.add(self.b.op("Pad", x, self.const(np.zeros(8, np.int64))), self.shapes[x])

    def max_pool(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        kernel = [min(2, h), min(2, w)]
        y = self.b.op("MaxPool", x, kernel_shape=kernel)
        return self.add(y, (n, c, h - kernel[0] + 1, w - kernel[1] + 1))

    def add_branches(self, x: str) -> str:
        same = [name for name, shape in self.shapes.items() if shape == self.shapes[x]]
        y = self.b.op("Add", x, self.draw(st.sampled_from(same)))
        return self.add(y, self.shapes[x])

    def concat(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        others = [(name, s[1]) for name, s in self.shapes.items()
                  if (s[0], *s[2:]) == (n, h, w) and s[1] + c <= MAX_CHANNELS]  # fmt: skip
        if not others:
            return self.relu(x)
        other, extra = self.draw(st.sampled_from(others))
        return self.add(self.b.op("Concat", other, x, axis=1), (n, c + extra, h, w))

    def affine(self, x: str) -> str:
        """Mul, Add, Div or Sub with a per-channel or scalar constant; it may come first."""
        op = self.draw(st.sampled_from(("Mul", "Add", "Div", "Sub")))
        shape = self.draw(st.sampled_from(((-1, 1, 1), (1, -1, 1, 1), ())))
        channels = self.shapes[x][1] if shape else 1
        values = self.b.rng.uniform(0.5, 2, channels) * self.b.rng.choice([-1, 1], channels)
        constant = self.const(values.reshape(shape))
        first = op != "Div" and self.rarely()  # constant / x could divide by zero
        return self.add(self.b.op(op, *((constant, x) if first else (x, constant))), self.shapes[x])

    def if_body(self, x: str) -> str:
        """If whose bodies use outer values: one a Conv of its own weight + BN, one Relu or BN."""
        if self.has_if:
            return self.relu(x)
        self.has_if = True
        flag, shape = self.b.input("flag", [], TensorProto.BOOL), self.shapes[x]
        then, other = self.b.body(), self.b.body()
        value = self.b.weight_values(shape[1], shape[1], 1, 1)
        weight, _ = self.weight_qdq(self.const(value), value, 0)
        inner = then.op("Conv", x, weight, then.init(then.random(shape[1])))
        then.typed_output(then.bn(inner, shape[1]) if self.often() else inner, shape)
        last = other.bn(x, shape[1]) if self.often() else other.op("Relu", x)
        other.typed_output(other.qdq(last, 0.05) if self.quantized else last, shape)
        bodies = {"then_branch": then.graph("then"), "else_branch": other.graph("else")}
        return self.add(self.b.op("If", flag, **bodies), shape)

    def head(self, x: str) -> None:
        """GlobalAveragePool → Flatten → Gemm (either transB, alpha) or MatMul (+ Add)."""
        channels = self.shapes[x][1]
        flat = self.b.op("Flatten", self.b.op("GlobalAveragePool", x))
        transposed = self.often()
        value = self.b.weight_values(*((5, channels) if transposed else (channels, 5)))
        weight, _ = self.weight_qdq(self.b.init(value), value, 0 if transposed else 1)
        if transposed or self.often():
            bias = [self.const(self.b.random(5))] if self.often() else []
            alpha = 0.5 if self.rarely() else 1.0
            self.b.op("Gemm", flat, weight, *bias, transB=int(transposed), alpha=alpha)
        else:
            y = self.b.op("MatMul", flat, weight)
            if self.often():
                self.b.op("Add", y, self.const(self.b.random(5)))

    # Quantizers

    def activation_qdq(self, x: str) -> None:
        """Put Q (→ Clip) → DQ behind the value; later nodes may read either side of it."""
        wide = (TensorProto.INT16,) if self.b.opset >= 21 else ()
        dtype = self.draw(st.sampled_from((TensorProto.INT8, TensorProto.UINT8, *wide)))
        lo, hi = CODE_RANGE[dtype]
        step = np.float32(self.draw(st.sampled_from((0.01, 0.03, 0.0625, 0.1))))
        modern = self.b.opset >= 13  # per channel needs 13; Clip of 8-bit integers needs 12
        if modern and self.rarely():
            channels = self.shapes[x][1]
            scale = (step * self.b.rng.uniform(0.5, 2, channels)).astype(np.float32)
            zeros = self.b.rng.integers(-20, 20, channels) + (lo + hi + 1) // 2
            self.add(self.b.qdq(x, scale, zeros, dtype, axis=1), self.shapes[x])
            return
        clip = None
        # onnxruntime has no Clip kernel for 16-bit integers.
        if modern and dtype not in wide and self.rarely():
            clip = self.draw(st.sampled_from(((lo + 1, hi), (0, 127))))
        lo, hi = clip or (lo, hi)
        zero = max(lo, 0) if self.often() else self.draw(st.integers(lo, hi))
        y = self.add(self.b.qdq(x, step, zero, dtype, clip=clip), self.shapes[x])
        self.steps[y] = np.asarray(step)

    def weight_qdq(self, name: str, value: Floats, axis: int) -> tuple[str, Floats | None]:
        """The weight as it is, or quantized one way; also its scale, where int32 bias needs it."""
        forms = ("fake", "stored", "narrow", "float") if self.b.opset >= 13 else ("fake", "stored")
        form = self.draw(st.sampled_from(forms)) if self.quantized else "float"
        if form == "float":
            return name, None
        per_channel = self.b.opset >= 13 and self.often()
        scale = channel_scale(value, axis) if per_channel else np.asarray(tensor_scale(value))
        where = axis if per_channel else None
        if form == "stored":
            small = self.b.opset >= 21 and self.rarely()
            dtype = TensorProto.INT4 if small else TensorProto.INT8
            scale = np.asarray(scale * (16 if small else 1), np.float32)
            return self.b.stored(value, scale, dtype, axis=where, narrow=self.often()), scale
        unsigned = form == "fake" and self.rarely()
        dtype, zero = (TensorProto.UINT8, 128) if unsigned else (TensorProto.INT8, 0)
        clip = (-127, 127) if form == "narrow" else None
        return self.b.qdq(name, scale, zero, dtype, axis=where, clip=clip), scale


NODES: tuple[Callable[[Grower, str], str], ...] = (
    Grower.conv, Grower.batch_norm, Grower.conv, Grower.relu, Grower.batch_norm,
    Grower.affine, Grower.add_branches, Grower.clip, Grower.identity, Grower.max_pool,
    Grower.concat, Grower.zero_pad, Grower.if_body,
)  # fmt: skip


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Random float CNN-like DAGs."""
    return Grower(draw, quantized=False).grow()


@st.composite
def qdq_graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Random DAGs with Q → DQ on some activations and weights, and stored integer weights."""
    return Grower(draw, quantized=True).grow()


class QArrays(NamedTuple):
    """A tensor and the parameters to quantize it with; axis None means per tensor."""

    x: Floats
    scale: Floats
    zero_point: npt.NDArray[np.integer]
    lo: int
    hi: int
    axis: int | None


RANGES: dict[type[np.integer], tuple[tuple[int, int], ...]] = {
    np.int8: ((-128, 127), (-127, 127), (-64, 63), (-8, 7), (0, 127)),
    np.uint8: ((0, 255), (0, 127), (0, 15), (1, 255)),
    np.int16: ((-32768, 32767), (-32767, 32767)),
    np.uint16: ((0, 65535),),
}


@st.composite
def qparams_arrays(draw: st.DrawFn, *, power_of_two: bool | None = None) -> QArrays:
    """Arrays with ties (k + 0.5)·scale, range ends, huge values, subnormals and negative zeros.

    Ties are exact in every precision only when the scale is a power of two; `power_of_two` asks
    for only such scales, or for none of them. With other scales float32 and float64 division may
    round to different sides.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(tuple(RANGES)))
    lo, hi = draw(st.sampled_from(RANGES[dtype]))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    axis = draw(st.none() | st.integers(0, len(shape) - 1))
    count = () if axis is None else (shape[axis],)
    exponent = rng.integers(-14, 4, count)
    binary = draw(st.booleans()) if power_of_two is None else power_of_two
    mantissa = 1.0 if binary else rng.uniform(1.001, 1.999, count)
    scale = np.asarray(mantissa * 2.0**exponent, np.float32)
    symmetric = lo <= 0 <= hi and draw(st.booleans())
    zero_point = np.asarray(0 if symmetric else rng.integers(lo, hi + 1, count), dtype)
    zero_point = np.broadcast_to(zero_point, count).copy()

    view = [-1 if i == axis else 1 for i in range(len(shape))] if axis is not None else ()
    step, zero = scale.reshape(view), zero_point.astype(np.int64).reshape(view)
    codes = rng.integers(lo - 3, hi + 4, shape) - zero
    tiny, huge = 1e-40, float(np.finfo(np.float32).max)
    kinds = (
        (rng.uniform(lo - 1, hi + 1, shape) - zero) * step,
        codes * step,
        (codes + 0.5) * step,
        (rng.choice([lo, hi], shape) - zero) * step,
        rng.choice([-huge, -1e30, -1e10, 1e10, 1e30, huge], shape),
        rng.choice([-0.0, 0.0, tiny, -tiny], shape),
    )
    x = np.choose(rng.integers(0, len(kinds), shape), kinds).astype(np.float32)
    return QArrays(x, scale, zero_point, lo, hi, axis)
