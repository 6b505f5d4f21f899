"""Integer operators: QLinearConv and its kin, layout operators on codes, int32 sums.

Scales are powers of two, so that float and integer arithmetic agree to the last bit, ties
included: what a pass changes beyond that shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.models.zoo_build import Build, model
from tests.models.zoo_tags import QDQ, SUBGRAPHS

INT8, UINT8 = TensorProto.INT8, TensorProto.UINT8
MICROSOFT = "com.microsoft"


class Integers(Build):
    """Verbs for operators on codes: a value is (codes, scale, zero point)."""

    Value = tuple[str, str, str]

    def grid(self, exponent: int, zero_point: int, dtype: int = UINT8) -> tuple[str, str]:
        """A scale of 2^exponent and a zero point."""
        zero = self.codes(np.array(zero_point), dtype, self.fresh("zero_point"))
        return self.init(np.float32(2.0**exponent), self.fresh("scale")), zero

    def quantized(self, x: str, exponent: int = -5, zero: int = 128, dtype: int = UINT8) -> Value:
        grid = self.grid(exponent, zero, dtype)
        return self.op("QuantizeLinear", x, *grid), *grid

    def real(self, value: Value) -> str:
        return self.op("DequantizeLinear", *value)

    def weight_codes(self, *shape: int, exponent: int = -9, channels: int = 0) -> Value:
        """int8 codes of a weight, its scale per tensor or one per channel."""
        codes = self.codes(self.rng.integers(-60, 61, shape), INT8, self.fresh("weight_codes"))
        if not channels:
            return codes, *self.grid(exponent, 0, INT8)
        scale = np.ldexp(np.float32(1), exponent - self.rng.integers(0, 2, channels))
        zero = self.codes(np.zeros(channels), INT8, self.fresh("zero_point"))
        return codes, self.init(scale.astype(np.float32), self.fresh("scale")), zero

    def bias_codes(self, channels: int) -> str:
        return self.init(self.rng.integers(-900, 900, channels).astype(np.int32))

    def conv_codes(self, x: Value, cin: int, cout: int, zero: int, *, pc: bool = True) -> Value:
        weight = self.weight_codes(cout, cin, 3, 3, channels=cout if pc else 0)
        grid = self.grid(-4, zero)
        bias = self.bias_codes(cout)
        y = self.op("QLinearConv", *x, *weight, *grid, bias, pads=[1, 1, 1, 1])
        return y, *grid

    def contrib(self, op: str, *args: str, **attrs: object) -> str:
        return self.ops(op, *args, outs=[self.fresh(op.lower())], domain=MICROSOFT, **attrs)[0]

    def finish(self, *outputs: tuple[str, Sequence[int]]) -> onnx.ModelProto:
        """The model; types are stated, since shape inference does not know contrib operators."""
        for name, shape in outputs:
            self.typed_output(name, shape)
        domains = [helper.make_opsetid("", self.opset)]
        if any(node.domain == MICROSOFT for node in self.nodes):
            domains.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(
            self.graph(), ir_version=self.ir, opset_imports=domains, producer_name="zoo"
        )


@model(QDQ)
def qop_conv_matmul() -> onnx.ModelProto:
    """QLinearConv per channel and per tensor, then QLinearMatMul with one scale per column."""
    b = Integers(13)
    x = b.quantized(b.input("x", [1, 3, 6, 6]))
    x = b.conv_codes(b.conv_codes(x, 3, 4, 0), 4, 4, 100, pc=False)
    flat = b.op("Reshape", x[0], b.ints(4, 36))
    grid = b.grid(-3, 120)
    weight = b.weight_codes(36, 5, channels=5)
    y = b.op("QLinearMatMul", flat, *x[1:], *weight, *grid)
    return b.finish((b.real((y, *grid)), [4, 5]))


@model(QDQ)
def qop_conv_opset_10() -> onnx.ModelProto:
    """QLinearConv at opset 10 without bias; DequantizeLinear has no axis there."""
    b = Integers(10)
    x = b.quantized(b.input("x", [1, 3, 6, 6]))
    weight, grid = b.weight_codes(4, 3, 3, 3, channels=4), b.grid(-4, 11)
    y = b.op("QLinearConv", *x, *weight, *grid, strides=[2, 2])
    return b.finish((b.real((y, *grid)), [1, 4, 2, 2]))


@model(QDQ)
def qop_layout_on_codes() -> onnx.ModelProto:
    """MaxPool, Pad, Resize, Concat, Split, Slice, Transpose, Gather and copies, all on codes."""
    b = Integers(13)
    x, *grid = b.quantized(b.input("x", [1, 4, 6, 6]), zero=100)
    pooled = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    padded = b.op("Pad", pooled, b.ints(0, 0, 1, 1, 0, 0, 2, 2), grid[1])
    wide = b.op("Resize", pooled, "", b.init(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    left, right = b.ops(
        "Split", b.op("Concat", padded, wide, axis=1), outs=["left", "right"], axis=1
    )
    part = b.op("Slice", left, b.ints(1), b.ints(5), b.ints(2))
    turned = b.op("Transpose", b.op("Identity", right), perm=[0, 2, 3, 1])
    rows = b.op("Gather", b.op("Cast", turned, to=UINT8), b.ints(0, 2), axis=1)
    flat = b.op("Flatten", b.op("Unsqueeze", rows, b.ints(0)))
    return b.finish((b.real((part, *grid)), [1, 4, 4, 6]), (b.real((flat, *grid)), [1, 48]))


@model(QDQ)
def qop_integer_sums() -> onnx.ModelProto:
    """ConvInteger and MatMulInteger with static parameters, scaled by Cast and Mul."""
    b = Integers(13)
    x, _, zero = b.quantized(b.input("x", [1, 3, 6, 6]), -5, 120)
    weight = b.codes(b.rng.integers(-60, 61, (4, 3, 3, 3)), INT8)
    sums = b.op("ConvInteger", x, weight, zero, pads=[1, 1, 1, 1])
    factor = np.ldexp(np.float32(1), -14 - np.arange(4)).reshape(4, 1, 1).astype(np.float32)
    y = b.op("Mul", b.op("Cast", sums, to=TensorProto.FLOAT), b.init(factor))
    y = b.op("Add", y, b.init(b.rng.integers(-8, 8, (4, 1, 1)).astype(np.float32) / 16))
    flat, *grid = b.quantized(b.op("Reshape", y, b.ints(4, 36)), -4, 128)
    codes = b.codes(b.rng.integers(0, 256, (36, 5)), UINT8)
    sums = b.op("MatMulInteger", flat, codes, grid[1], b.codes(np.array(128), UINT8))
    scale = b.op("Mul", grid[0], b.init(np.float32(2.0**-8)))
    return b.finish((b.op("Mul", scale, b.op("Cast", sums, to=TensorProto.FLOAT)), [4, 5]))


@model(QDQ)
def qop_contrib() -> onnx.ModelProto:
    """onnxruntime's QLinearAdd, Mul, Concat, both average pools, LeakyRelu and QGemm."""
    b = Integers(13)
    x = b.quantized(b.input("x", [1, 4, 6, 6]))
    left = b.conv_codes(x, 4, 4, 90)
    added, product = b.grid(-4, 110), b.grid(-3, 128)
    total = b.contrib("QLinearAdd", *left, *x, *added)
    scaled = b.contrib("QLinearMul", total, *added, *left, *product)
    joined = b.grid(-3, 100)
    args = [*joined, total, *added, scaled, *product]
    y = b.contrib("QLinearConcat", *args, axis=1)
    pooled, steep = b.grid(-3, 60), b.grid(-4, 50)
    y = b.contrib("QLinearAveragePool", y, *joined, *pooled, kernel_shape=[2, 2], strides=[2, 2])
    y = b.contrib("QLinearLeakyRelu", y, *pooled, *steep, alpha=0.125)
    whole, last = b.grid(-5, 40), b.grid(-5, 128)
    y = b.op("Slice", y, b.ints(0, 0), b.ints(2, 2), b.ints(2, 3))
    y = b.contrib("QLinearGlobalAveragePool", y, *steep, *whole, channels_last=0)
    weight = b.weight_codes(5, 8, channels=5)
    flat = b.op("Flatten", y)
    y = b.contrib("QGemm", flat, *whole, *weight, b.bias_codes(5), *last, transB=1, alpha=0.5)
    return b.finish((b.real((y, *last)), [1, 5]))


@model(QDQ)
def qop_contrib_curves() -> onnx.ModelProto:
    """onnxruntime's QLinearSigmoid, Softmax and Where, and a QGemm with a float result."""
    b = Integers(13)
    x = b.quantized(b.input("x", [3, 6]))
    half, share = b.grid(-8, 0), b.grid(-8, 0)
    bent = b.contrib("QLinearSigmoid", *x, *half)
    shares = b.contrib("QLinearSoftmax", *x, *share, axis=-1, opset=13)
    mask = b.init(b.rng.integers(0, 2, (3, 6)).astype(bool))
    # Twice as coarse as its input, so that every other value is a tie, and an odd zero point.
    mixed = b.grid(-7, 5)
    y = b.contrib("QLinearWhere", mask, bent, *half, shares, *share, *mixed)
    weight = b.weight_codes(6, 4)
    product = b.contrib("QGemm", y, *mixed, *weight, b.bias_codes(4))
    return b.finish((b.real((y, *mixed)), [3, 6]), (product, [3, 4]))


@model(QDQ)
def qop_channels_last() -> onnx.ModelProto:
    """QLinearConv and average pools of onnxruntime with channels in the last dimension."""
    b = Integers(13)
    x = b.quantized(b.input("x", [1, 6, 6, 4]))
    weight, grid = b.weight_codes(4, 4, 3, 3), b.grid(-4, 100)
    attrs = {"channels_last": 1, "pads": [1, 1, 1, 1]}
    y = b.contrib("QLinearConv", *x, *weight, *grid, b.bias_codes(4), **attrs)
    y = b.contrib("NhwcMaxPool", y, kernel_shape=[2, 2], pads=[1, 0, 0, 1])
    pooled, whole = b.grid(-4, 90), b.grid(-5, 80)
    attrs = {"channels_last": 1, "kernel_shape": [2, 2], "strides": [3, 3]}
    y = b.contrib("QLinearAveragePool", y, *grid, *pooled, **attrs)
    y = b.contrib("QLinearGlobalAveragePool", y, *pooled, *whole, channels_last=1)
    return b.finish((b.real((y, *whole)), [1, 1, 1, 4]))


@model(QDQ, SUBGRAPHS)
def qop_in_if() -> onnx.ModelProto:
    """QLinearMatMul in one branch, codes of the outer graph pooled in the other."""
    b = Integers(13)
    flag, x = b.input("flag", [], TensorProto.BOOL), b.input("x", [2, 6])
    codes, *grid = b.quantized(x)
    weight = b.weight_codes(6, 6)
    bodies = {}
    for branch in ("then", "else"):
        body = Integers(13)
        body.rng, body.counter = b.rng, b.counter
        y = codes
        if branch == "then":
            y = body.op("QLinearMatMul", codes, *grid, *weight, *grid)
        y = body.op("Transpose", y, perm=[1, 0])
        body.typed_output(body.op("DequantizeLinear", y, *grid), [6, 2])
        bodies[f"{branch}_branch"] = body.graph(branch)
    return b.finish((b.op("If", flag, **bodies), [6, 2]))
