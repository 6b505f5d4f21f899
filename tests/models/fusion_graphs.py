"""Hypothesis strategy: quantized graphs that vary what decides whether onnxruntime fuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto

from tests.models.zoo_build import CODE_RANGE, Build, Floats, channel_scale, tensor_scale

OPSETS = (11, 13, 17, 19, 21, 22, 24)
NCHW, ROWS = 4, 2
INT8, UINT8, INT16, UINT16 = (
    *(TensorProto.INT8, TensorProto.UINT8),
    *(TensorProto.INT16, TensorProto.UINT16),
)


class FusionGrower:
    """Grows layers, each with its own kind of activation, bias, types and readers."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.b = Build(self.one_of(*OPSETS), seed=draw(st.integers(0, 2**16)))
        self.wide = self.b.opset >= 21
        self.kind = self.one_of(UINT8, UINT8, INT8)
        """The type that most quantizers of this graph have."""
        self.images: dict[str, tuple[int, ...]] = {}
        self.rows: dict[str, tuple[int, ...]] = {}
        self.steps: dict[str, float] = {}

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def often(self) -> bool:
        return bool(self.draw(st.booleans()))

    def seldom(self) -> bool:
        return bool(self.draw(st.integers(0, 5)) == 5)

    # -- quantizers -------------------------------------------------------------------------

    def quantized(self, x: str, *, positive: bool = False) -> str:
        """`x` behind a pair, usually one that an integer kernel can take."""
        dtype = self.kind
        if self.seldom():
            dtype = self.one_of(INT8, UINT8, *((INT16, UINT16) if self.wide else ()))
        lo, hi = CODE_RANGE[dtype]
        if positive and not self.seldom():
            zero = lo
        else:
            zero = self.one_of((lo + hi + 1) // 2, lo, self.draw(st.integers(lo, hi)))
        step = self.one_of(0.02, 6 / 255, 0.05, 0.1)
        y = self.bare_pair(x, step) if self.seldom() else self.b.qdq(x, step, zero, dtype)
        self.steps[y] = step
        return y

    def bare_pair(self, x: str, step: float) -> str:
        """Q -> DQ without zero points: uint8 codes from 0 up."""
        scale = self.b.init(np.float32(step))
        return self.b.op("DequantizeLinear", self.b.op("QuantizeLinear", x, scale), scale)

    def parameter(self, value: Floats, axis: int) -> tuple[str, Floats | None]:
        """A weight: stored or fake codes, of 8 or 4 bits, per tensor or channel, or float."""
        form = self.one_of("stored", "stored", "fake", "unsigned", "shifted", "int4", "float")
        if form == "float":
            return self.b.init(value), None
        per_channel = self.b.opset >= 13 and self.often()
        scale = channel_scale(value, axis) if per_channel else np.asarray(tensor_scale(value))
        where = axis if per_channel else None
        if form == "fake":
            return self.b.qdq(self.b.init(value), scale, 0, INT8, axis=where), scale
        if form == "unsigned":
            return self.b.stored(value, scale, UINT8, axis=where, zero_point=128), scale
        if form == "shifted":
            return self.b.stored(value, scale, INT8, axis=where, zero_point=3), scale
        if form == "int4" and self.wide:
            scale = np.asarray(scale * 16, np.float32)
            return self.b.stored(value, scale, TensorProto.INT4, axis=where), scale
        zero = None if self.seldom() else 0
        return self.b.stored(value, scale, INT8, axis=where, zero_point=zero), scale

    def bias(self, x: str, size: int, scale: Floats | None) -> list[str]:
        """No bias, a float one, or int32 codes whose scale is right or somewhat wrong."""
        form = self.one_of("none", "float", "int32", "int32")
        if form == "none":
            return []
        values = self.b.random(size)
        if form == "float" or scale is None or x not in self.steps:
            return [self.b.init(values)]
        wrong = self.one_of(1.0, 1.0, 1.001, 1.05, 2.0)
        return [self.b.bias32(values, np.asarray(self.steps[x] * scale * wrong, np.float32))]

    def finish(self, y: str) -> str:
        """An activation function or none, then a quantizer or none, then perhaps another use."""
        made = self.one_of("", "", "Relu", "Clip", "Sigmoid")
        positive = made in ("Relu", "Clip")
        if made == "Clip":
            bounds = [self.b.init(np.float32(v)) for v in (0.0, self.one_of(6.0, 3.0))]
            y = self.b.op("Clip", y, *bounds)
        elif made:
            y = self.b.op(made, y)
        if self.seldom():
            self.b.op("Neg", y)  # another reader of what is not quantized
        if self.seldom():
            return y
        z = self.quantized(y, positive=positive)
        if self.seldom():
            self.b.op("Neg", z)
        return z

    # -- layers -----------------------------------------------------------------------------

    def conv(self) -> None:
        x, shape = self.any_of(self.images)
        rank, cin = len(shape), shape[1]
        group = self.one_of(1, 1, cin)
        cout = group * self.one_of(1, 2) if group > 1 else 4
        k = [3] * (rank - 2)
        value = self.b.weight_values(cout, cin // group, *k)
        weight, scale = self.parameter(value, 0)
        y = self.b.op(
            "Conv", x, weight, *self.bias(x, cout, scale), group=group, pads=[1] * 2 * len(k)
        )
        self.images[self.finish(y)] = (shape[0], cout, *shape[2:])

    def conv_transpose(self) -> None:
        x, shape = self.any_of(self.images)
        k = [3] * (len(shape) - 2)
        value = self.b.weight_values(shape[1], 4, *k)
        weight, scale = self.parameter(value, 1)
        y = self.b.op("ConvTranspose", x, weight, *self.bias(x, 4, scale), pads=[1] * 2 * len(k))
        self.images[self.finish(y)] = (shape[0], 4, *shape[2:])

    def add(self) -> None:
        x, shape = self.any_of(self.images)
        same = [name for name, s in self.images.items() if s == shape]
        other = self.one_of(*same)
        if self.seldom():
            other = self.b.init(self.b.random(shape[1], *[1] * (len(shape) - 2)))
        y = self.b.op(self.one_of("Add", "Add", "Mul"), x, other)
        self.images[self.finish(y)] = shape

    def max_pool(self) -> None:
        x, shape = self.any_of(self.images)
        window = [3] * (len(shape) - 2)
        op = self.one_of("MaxPool", "AveragePool")
        y = self.b.op(op, x, kernel_shape=window, pads=[1] * 2 * len(window))
        quantized = self.often()
        self.images[self.quantized(y) if quantized else y] = shape

    def concat(self) -> None:
        x, shape = self.any_of(self.images)
        same = [name for name, s in self.images.items() if s == shape]
        if shape[1] <= 8:
            y = self.b.op("Concat", x, self.one_of(*same), axis=1)
            self.images[self.finish(y)] = (shape[0], 2 * shape[1], *shape[2:])

    def flatten(self) -> None:
        x, shape = self.any_of(self.images)
        if self.often():
            y = self.b.op("Flatten", x)
        else:
            y = self.b.op("Reshape", x, self.b.ints(shape[0], -1))
        made = (shape[0], int(np.prod(shape[1:])))
        self.rows[self.quantized(y) if self.seldom() else y] = made

    def gemm(self) -> None:
        x, (n, k) = self.any_of(self.rows)
        trans = self.often()
        value = self.b.weight_values(*((5, k) if trans else (k, 5)))
        weight, scale = self.parameter(value, 0 if trans else 1)
        attrs = {"beta": 0.5} if self.seldom() else {"alpha": 0.5} if self.seldom() else {}
        y = self.b.op("Gemm", x, weight, *self.bias(x, 5, scale), transB=int(trans), **attrs)
        self.rows[self.finish(y)] = (n, 5)

    def matmul(self) -> None:
        x, (n, k) = self.any_of(self.rows)
        value = self.b.weight_values(k, 5)
        weight, _ = self.parameter(value, 1)
        y = self.b.op("MatMul", x, weight)
        if self.often():
            y = self.b.op("Add", y, self.b.init(self.b.random(5)))
        self.rows[self.finish(y)] = (n, 5)

    def product(self) -> None:
        """A product of two activations, x @ x.T."""
        x, (n, _) = self.any_of(self.rows)
        turned = self.b.op("Transpose", x, perm=[1, 0])
        if self.often():
            turned = self.quantized(turned)
        self.rows[self.finish(self.b.op("MatMul", x, turned))] = (n, n)

    def any_of(self, known: dict[str, tuple[int, ...]]) -> tuple[str, tuple[int, ...]]:
        names = list(known)
        name = names[-1] if self.often() else self.one_of(*names)
        return name, known[name]

    def grow(self) -> onnx.ModelProto:
        size = self.one_of((5, 5), (6,))
        shape = (2, 4, *size)
        x = self.b.input("x", shape)
        self.images[self.quantized(x) if not self.seldom() else x] = shape
        for _ in range(self.draw(st.integers(2, 5))):
            self.one_of(*IMAGE_LAYERS)(self)
        if self.often():
            self.flatten()
            for _ in range(self.draw(st.integers(1, 3))):
                self.one_of(*ROW_LAYERS)(self)
        read = {name for node in self.b.nodes for name in node.input}
        ends = [node.output[0] for node in self.b.nodes if node.output[0] not in read]
        return self.b.model(*ends)


IMAGE_LAYERS: tuple[Callable[[FusionGrower], None], ...] = (
    *(FusionGrower.conv, FusionGrower.conv, FusionGrower.conv, FusionGrower.add),
    *(FusionGrower.conv_transpose, FusionGrower.max_pool, FusionGrower.concat),
)
ROW_LAYERS: tuple[Callable[[FusionGrower], None], ...] = (
    *(FusionGrower.gemm, FusionGrower.matmul, FusionGrower.product),
)


@st.composite
def fusion_graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Graphs of quantized layers in all the forms that onnxruntime tells apart."""
    return FusionGrower(draw).grow()
