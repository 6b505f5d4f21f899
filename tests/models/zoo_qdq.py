"""Quantized models: QuantizeLinear / DequantizeLinear in the ways trainers and tools write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tests.models.zoo_build import Build, channel_scale, model, tensor_scale
from tests.models.zoo_tags import BATCH_NORM, CNN, QDQ, SUBGRAPHS

INT8, UINT8 = TensorProto.INT8, TensorProto.UINT8
INT16, UINT16 = TensorProto.INT16, TensorProto.UINT16
STEP = 0.03
"""Activation scale: eight bits then span about the range of unit-variance data."""


def image(b: Build, channels: int = 3, size: int = 6) -> str:
    return b.input("x", [1, channels, size, size])


def trained_conv(
    b: Build,
    x: str,
    cin: int,
    cout: int,
    *,
    axis: int | None = None,
    clip: tuple[int, int] | None = None,
    zero_channel: bool = False,
    k: int = 3,
    group: int = 1,
    **kwargs: Any,
) -> str:
    """Conv whose float weight passes Q → DQ, as fake-quant training exports it."""
    weight = b.weight_values(cout, cin // group, k, k)
    if zero_channel:
        weight[1] = 0
    scale = tensor_scale(weight) if axis is None else channel_scale(weight, axis)
    fake = b.qdq(b.init(weight, b.fresh("weight")), scale, axis=axis, clip=clip)
    return b.conv(x, cin, cout, k=k, group=group, weight=fake, **kwargs)


def stored_conv(
    b: Build, x: str, cin: int, cout: int, *, step: float = STEP, k: int = 3, group: int = 1,
    **attrs: Any,
) -> str:  # fmt: skip
    """Conv with int8 per-channel codes and an int32 bias of scale step·scale_w."""
    weight = b.weight_values(cout, cin // group, k, k)
    scale = channel_scale(weight, 0)
    args = b.stored(weight, scale, axis=0), b.bias32(b.random(cout), step * scale)
    attrs.setdefault("pads", [k // 2] * 4)
    return b.op("Conv", x, *args, group=group, kernel_shape=[k, k], **attrs)


def relu_u8(b: Build, x: str, step: float = STEP) -> str:
    return b.qdq(b.op("Relu", x), step, 0, UINT8)


@model(QDQ, CNN)
def qdq_int8_per_tensor() -> onnx.ModelProto:
    """int8 symmetric per tensor everywhere, float weights through Q → DQ, float bias."""
    b = Build(13)
    x = b.qdq(image(b), STEP)
    x = b.qdq(b.op("Relu", trained_conv(b, x, 3, 8)), STEP)
    return b.model(b.qdq(trained_conv(b, x, 8, 4, strides=[2, 2]), STEP))


@model(QDQ, CNN)
def qdq_uint8_stored_int32_bias() -> onnx.ModelProto:
    """onnxruntime style: uint8 (zero point 0 after Relu), stored per-channel int8, int32 bias."""
    b = Build(13)
    x = b.qdq(image(b), STEP, 128, UINT8)
    x = relu_u8(b, stored_conv(b, x, 3, 8))
    return b.model(b.qdq(stored_conv(b, x, 8, 4), STEP, 117, UINT8))


@model(QDQ, CNN)
def qdq_per_channel_trained() -> onnx.ModelProto:
    """Float weights through per-channel Q → DQ, activations uint8 with an odd zero point."""
    b = Build(13)
    x = b.qdq(image(b), STEP, 121, UINT8)
    x = relu_u8(b, trained_conv(b, x, 3, 6, axis=0, bias=False))
    return b.model(b.qdq(trained_conv(b, x, 6, 4, axis=0), STEP, 128, UINT8))


@model(QDQ, CNN)
def qdq_depthwise_grouped() -> onnx.ModelProto:
    """Depthwise, pointwise and grouped Conv, all stored int8 per channel."""
    b = Build(13)
    x = b.qdq(image(b, 4), STEP, 128, UINT8)
    x = relu_u8(b, stored_conv(b, x, 4, 4, group=4))
    x = relu_u8(b, stored_conv(b, x, 4, 6, k=1))
    return b.model(relu_u8(b, stored_conv(b, x, 6, 8, group=2)))


@model(QDQ, CNN)
def qdq_all_zero_channel() -> onnx.ModelProto:
    """A weight channel that is all zero, per channel; its codes are zero at any scale."""
    b = Build(13)
    x = b.qdq(image(b), STEP)
    return b.model(relu_u8(b, trained_conv(b, x, 3, 4, axis=0, zero_channel=True)))


@model(QDQ, CNN)
def qdq_narrow_weights() -> onnx.ModelProto:
    """Weights Q → Clip(-127, 127) → DQ, per tensor and per channel."""
    b = Build(13)
    x = b.qdq(image(b), STEP)
    x = relu_u8(b, trained_conv(b, x, 3, 6, clip=(-127, 127)))
    return b.model(b.qdq(trained_conv(b, x, 6, 4, axis=0, clip=(-127, 127)), STEP))


@model(QDQ)
def qdq_narrow_activations() -> onnx.ModelProto:
    """Activations Q → Clip(0, 127) → DQ (7 bits for AVX2) and weights Q → Clip(-64, 63) → DQ."""
    b = Build(13)
    x = b.qdq(image(b), 2 * STEP, 64, UINT8, clip=(0, 127))
    x = b.op("Relu", trained_conv(b, x, 3, 6, clip=(-64, 63)))
    x = b.qdq(x, 2 * STEP, 0, INT8, clip=(0, 127))
    return b.model(b.qdq(trained_conv(b, x, 6, 4), STEP, clip=(-127, 127)))


@model(QDQ, CNN)
def qdq_saturating() -> onnx.ModelProto:
    """Codes near 255 × 127 everywhere: pairwise int16 sums overflow on CPUs without VNNI."""
    b = Build(13)
    x = b.qdq(b.op("Abs", image(b, 8)), 0.002, 0, UINT8)
    weight = b.init(np.full((4, 8, 3, 3), 0.02, np.float32) + b.random(4, 8, 3, 3, scale=1e-4))
    fake = b.qdq(weight, tensor_scale(np.array([0.0205], np.float32)))
    return b.model(b.qdq(b.conv(x, 8, 4, weight=fake, bias=False), 0.004, 0, UINT8))


@model(QDQ)
def qdq_int16_activations() -> onnx.ModelProto:
    """int16 and uint16 activations with int8 weights at opset 21."""
    b = Build(21)
    x = b.qdq(image(b), 2e-4, dtype=INT16)
    x = b.qdq(b.op("Relu", trained_conv(b, x, 3, 6, axis=0)), 2e-4, 0, UINT16)
    return b.model(b.qdq(trained_conv(b, x, 6, 4), 2e-4, 31000, UINT16))


@model(QDQ)
def qdq_int4_per_channel() -> onnx.ModelProto:
    """Stored int4 per-channel Conv and Gemm weights at opset 21, an odd number of codes."""
    b = Build(21)
    weight = b.weight_values(5, 3, 3, 3)
    codes = b.stored(weight, channel_scale(weight, 0, 7), TensorProto.INT4, axis=0)
    x = b.qdq(b.op("Relu", b.conv(b.qdq(image(b), STEP), 3, 5, weight=codes)), STEP)
    dense = b.weight_values(3, 5)
    codes = b.stored(dense, channel_scale(dense, 0, 7), TensorProto.INT4, axis=0)
    flat = b.op("Flatten", b.op("GlobalAveragePool", x))
    return b.model(b.op("Gemm", flat, codes, b.init(b.random(3)), transB=1))


@model(QDQ)
def qdq_int4_blocked() -> onnx.ModelProto:
    """Stored int4 MatMul weight with one scale per block of 4 rows, and a uint4 one likewise."""
    b = Build(21)
    x = b.input("x", [2, 8])
    for dtype, zero in ((TensorProto.INT4, None), (TensorProto.UINT4, 8)):
        weight = b.weight_values(8, 8)
        scale = np.abs(weight).reshape(2, 4, 8).max(1) / 7
        x = b.op("MatMul", x, b.stored(weight, scale, dtype, axis=0, block=4, zero_point=zero))
    return b.model(x)


@model(QDQ)
def qdq_uint4() -> onnx.ModelProto:
    """Weights quantized in the graph to uint4, per channel on axis 1 and per tensor."""
    b = Build(21)
    x = b.qdq(b.input("x", [2, 3, 6]), STEP)
    weight = b.weight_values(6, 5)
    scale = channel_scale(weight, 1, 7)
    fake = b.qdq(b.init(weight), scale, 8, TensorProto.UINT4, axis=1)
    x = b.op("MatMul", x, fake)
    weight = b.weight_values(5, 4)
    return b.model(b.op("MatMul", x, b.qdq(b.init(weight), tensor_scale(weight, 7), 7,
                                           TensorProto.UINT4)))  # fmt: skip


@model(QDQ, CNN)
def qdq_shared_params() -> onnx.ModelProto:
    """One scale and one zero-point initializer used by every Q and DQ, of weights as well."""
    b = Build(13)
    scale, zero = b.init(np.float32(STEP), "scale"), b.init(np.int8(0), "zero")

    def fake(x: str) -> str:
        q = b.op("QuantizeLinear", x, scale, zero)
        return b.op("DequantizeLinear", q, scale, zero)

    x = fake(image(b))
    for cin, cout in ((3, 6), (6, 4)):
        x = fake(b.op("Relu", b.conv(x, cin, cout, weight=fake(b.weight(cout, cin, 3, 3)))))
    return b.model(x)


@model(QDQ, CNN)
def qdq_shared_weight_four_scales() -> onnx.ModelProto:
    """One float weight read by four Q → DQ pairs of different scales."""
    b = Build(13)
    x, weight = b.qdq(image(b, 4), STEP), b.weight(4, 4, 3, 3)
    parts = [b.conv(x, 4, 4, weight=b.qdq(weight, s)) for s in (0.002, 0.004, 0.008, 0.016)]
    return b.model(*(b.qdq(part, STEP) for part in parts))


@model(QDQ, CNN)
def qdq_one_element_scales() -> onnx.ModelProto:
    """Per-tensor scales and zero points of shape [1] where tools expect 0-d."""
    b = Build(13)
    x = b.qdq(image(b), [STEP], [3])
    weight = b.weight_values(4, 3, 3, 3)
    x = b.conv(x, 3, 4, weight=b.qdq(b.init(weight), [tensor_scale(weight)]))
    return b.model(b.qdq(b.op("Relu", x), [STEP], [0], UINT8))


@model(QDQ, CNN)
def qdq_no_zero_point() -> onnx.ModelProto:
    """Q and DQ without zero point (hence uint8), and a stored int8 weight without one."""
    b = Build(13)
    step = b.init(np.float32(STEP))
    x = b.op("DequantizeLinear", b.op("QuantizeLinear", image(b), step), step)
    weight = b.weight_values(4, 3, 3, 3)
    codes = b.stored(weight, tensor_scale(weight), zero_point=None)
    x = b.op("Relu", b.conv(x, 3, 4, weight=codes))
    return b.model(b.op("DequantizeLinear", b.op("QuantizeLinear", x, step), step))


@model(QDQ, CNN)
def qdq_opset_10() -> onnx.ModelProto:
    """Per-tensor QDQ at opset 10, before Q and DQ had an axis."""
    b = Build(10)
    x = b.qdq(image(b), STEP, 128, UINT8)
    x = relu_u8(b, trained_conv(b, x, 3, 6))
    return b.model(b.qdq(trained_conv(b, x, 6, 4), STEP, 128, UINT8))


@model(QDQ, CNN)
def qdq_fan_out() -> onnx.ModelProto:
    """One Q read by two DQ, each feeding a Conv; one DQ read by two Conv."""
    b = Build(13)
    scale, zero = b.init(np.float32(STEP)), b.init(np.int8(0))
    q = b.op("QuantizeLinear", image(b), scale, zero)
    left, right = (b.op("DequantizeLinear", q, scale, zero) for _ in range(2))
    outs = [trained_conv(b, left, 3, 4), trained_conv(b, right, 3, 4), trained_conv(b, right, 3, 2)]
    return b.model(*(b.qdq(out, STEP) for out in outs))


@model(QDQ)
def qdq_output_without_quantizer() -> onnx.ModelProto:
    """The last Conv and a Gemm head leave the quantized world in float."""
    b = Build(13)
    x = relu_u8(b, trained_conv(b, b.qdq(image(b), STEP), 3, 4, axis=0))
    last = trained_conv(b, x, 4, 2)
    flat = b.op("Flatten", b.op("GlobalAveragePool", x))
    return b.model(last, b.op("Gemm", flat, b.weight(4, 3)))


@model(QDQ, CNN)
def qdq_residual() -> onnx.ModelProto:
    """Residual Add whose two inputs and output each have a quantizer."""
    b = Build(13)
    x = relu_u8(b, stored_conv(b, b.qdq(image(b), STEP), 3, 4))
    main = b.qdq(stored_conv(b, relu_u8(b, stored_conv(b, x, 4, 4)), 4, 4), STEP)
    return b.model(relu_u8(b, b.op("Add", main, x), 2 * STEP))


@model(QDQ, CNN)
def qdq_concat_maxpool() -> onnx.ModelProto:
    """QDQ on both sides of MaxPool, Concat (inputs of different scales) and AveragePool."""
    b = Build(13)
    x = b.qdq(image(b), STEP)
    left = b.qdq(trained_conv(b, x, 3, 4), STEP)
    left = b.qdq(b.op("MaxPool", left, kernel_shape=[2, 2], strides=[2, 2]), STEP)
    right = b.qdq(trained_conv(b, x, 3, 4, strides=[2, 2]), 0.7 * STEP)
    joined = b.qdq(b.op("Concat", left, right, axis=1), STEP)
    pooled = b.qdq(b.op("AveragePool", joined, kernel_shape=[3, 3]), STEP)
    return b.model(b.qdq(trained_conv(b, pooled, 8, 2, k=1), STEP))


@model(QDQ, CNN)
def qdq_indirect_params() -> onnx.ModelProto:
    """Scales and zero points behind Identity, Constant nodes and Constant(value_float)."""
    b = Build(13)
    scale, zero = b.op("Constant", value_float=STEP), b.constant(np.int8(0))
    x = b.op("DequantizeLinear", b.op("QuantizeLinear", image(b), scale, zero), scale, zero)
    values = b.weight_values(4, 3, 3, 3)
    step = b.op("Identity", b.init(channel_scale(values, 0)))
    zeros = b.op("Identity", b.op("Identity", b.init(np.zeros(4, np.int8))))
    q = b.op("QuantizeLinear", b.constant(values), step, zeros, axis=0)
    weight = b.op("DequantizeLinear", q, step, zeros, axis=0)
    x = b.op("Relu", b.conv(x, 3, 4, weight=weight))
    return b.model(b.op("DequantizeLinear", b.op("QuantizeLinear", x, scale, zero), scale, zero))


@model(QDQ, BATCH_NORM)
def qdq_bn_unfolded() -> onnx.ModelProto:
    """Quantized-weight Conv + BN: trained per channel and per tensor, stored, zero and negative
    gamma."""
    b = Build(13)
    x = b.qdq(image(b), STEP)
    x = relu_u8(b, b.bn(trained_conv(b, x, 3, 4, axis=0), 4, gamma=[1.1, -0.9, 0.0, 0.4]))
    x = relu_u8(b, b.bn(trained_conv(b, x, 4, 4, bias=False), 4, gamma=[-1.0, 0.8, 1.3, 0.0]))
    return b.model(b.qdq(b.bn(stored_conv(b, x, 4, 3), 3, gamma=[0.0, -0.7, 1.2]), 2 * STEP))


@model(QDQ, BATCH_NORM)
def qdq_qat_training_form() -> onnx.ModelProto:
    """Conv(FQ(W·f)) → Div f → Add b → BN, f = gamma / sqrt(var + eps) computed in the graph."""
    b = Build(13)
    x = b.qdq(image(b), STEP)
    gamma, beta, mean = np.array([0.9, -1.1, 0.5, 1.4], np.float32), b.random(4), b.random(4)
    stats = [b.init(v) for v in (gamma, beta, mean, b.rng.uniform(0.5, 2.0, 4))]
    deviation = b.op("Sqrt", b.op("Add", stats[3], b.init(np.float32(1e-3))))
    factor = b.op("Div", stats[0], deviation)
    values = b.weight_values(4, 3, 3, 3)
    scaled = b.op("Mul", b.init(values), b.op("Reshape", factor, b.ints(-1, 1, 1, 1)))
    fake = b.qdq(scaled, channel_scale(values, 0), axis=0, clip=(-127, 127))
    x = b.conv(x, 3, 4, weight=fake, bias=False)
    x = b.op("Div", x, b.op("Reshape", factor, b.ints(1, -1, 1, 1)))
    x = b.op("Add", x, b.op("Reshape", b.init(b.random(4)), b.ints(1, -1, 1, 1)))
    return b.model(relu_u8(b, b.op("BatchNormalization", x, *stats, epsilon=1e-3)))


def qdq_conv_transpose_of(groups: int) -> onnx.ModelProto:
    b = Build(13)
    weight = b.weight_values(4, 6 // groups, 3, 3)
    fake = b.qdq(b.init(weight), channel_scale(weight, 1), axis=1)
    attrs = {"strides": [2, 2], "group": groups}
    x = b.op("ConvTranspose", b.qdq(image(b, 4, 4), STEP), fake, b.init(b.random(6)), **attrs)
    return b.model(relu_u8(b, x))


@model(QDQ)
def qdq_conv_transpose() -> onnx.ModelProto:
    """ConvTranspose with weight scales on axis 1, one per output channel."""
    return qdq_conv_transpose_of(1)


@model(QDQ)
def qdq_conv_transpose_groups() -> onnx.ModelProto:
    """ConvTranspose with 2 groups: axis 1 has 3 scales for 6 output channels."""
    return qdq_conv_transpose_of(2)


@model(QDQ)
def qdq_gemm() -> onnx.ModelProto:
    """Gemm transB=1 per channel on axis 0 with int32 bias, then transB=0 on axis 1."""
    b = Build(13)
    weight = b.weight_values(5, 6)
    scale = channel_scale(weight, 0)
    args = b.stored(weight, scale, axis=0), b.bias32(b.random(5), STEP * scale)
    x = relu_u8(b, b.op("Gemm", b.qdq(b.input("x", [2, 6]), STEP), *args, transB=1))
    weight = b.weight_values(5, 4)
    fake = b.qdq(b.init(weight), channel_scale(weight, 1), axis=1)
    return b.model(b.qdq(b.op("Gemm", x, fake, b.init(b.random(4))), STEP))


@model(QDQ)
def qdq_matmul() -> onnx.ModelProto:
    """MatMul with weight scales on the last axis, written as 1 and as -1, plus bias Add."""
    b = Build(13)
    x = b.qdq(b.input("x", [2, 3, 6]), STEP, 128, UINT8)
    for cin, cout, axis in ((6, 5, 1), (5, 4, -1)):
        weight = b.weight_values(cin, cout)
        fake = b.qdq(b.init(weight), channel_scale(weight, 1), axis=axis)
        product = b.qdq(b.op("MatMul", x, fake), STEP, 128, UINT8)
        x = b.qdq(b.op("Add", product, b.init(b.random(cout))), 2 * STEP, 128, UINT8)
    return b.model(x)


@model(QDQ, SUBGRAPHS)
def qdq_in_if() -> onnx.ModelProto:
    """QDQ inside If bodies, one on an outer weight with outer scales, one on its own."""
    b = Build(13)
    flag, x = b.input("flag", [], TensorProto.BOOL), b.qdq(image(b), STEP)
    weight, scale, zero = b.weight(3, 3, 3, 3), b.init(np.float32(0.004)), b.init(np.int8(0))
    first = b.op("DequantizeLinear", b.op("QuantizeLinear", weight, scale, zero), scale, zero)
    x = b.qdq(b.conv(x, 3, 3, weight=first), STEP)
    then, other = b.body(), b.body()
    q = then.op("QuantizeLinear", weight, scale, zero)
    inner = then.conv(x, 3, 3, weight=then.op("DequantizeLinear", q, scale, zero))
    then.typed_output(then.qdq(inner, STEP), [1, 3, 6, 6])
    other.typed_output(relu_u8(other, trained_conv(other, x, 3, 3, axis=0)), [1, 3, 6, 6])
    bodies = {"then_branch": then.graph("then"), "else_branch": other.graph("else")}
    return b.model(b.op("If", flag, **bodies))


@model(QDQ, CNN)
def qdq_dynamic_batch() -> onnx.ModelProto:
    """A symbolic batch through a quantized CNN with a quantized Gemm head."""
    b = Build(17)
    x = b.qdq(b.input("x", ["N", 3, 6, 6]), STEP, 128, UINT8)
    x = relu_u8(b, stored_conv(b, x, 3, 6, strides=[2, 2]))
    x = b.qdq(b.op("GlobalAveragePool", x), STEP, 0, UINT8)
    weight = b.weight_values(4, 6)
    fake = b.qdq(b.init(weight), channel_scale(weight, 0), axis=0)
    return b.model(b.qdq(b.op("Gemm", b.op("Flatten", x), fake, transB=1), STEP))
