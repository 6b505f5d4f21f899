"""Float models of one layer kind or one folding situation each."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from tests.models.zoo_build import Build, model
from tests.models.zoo_tags import BATCH_NORM, FLOAT


def image(b: Build, channels: int = 3, size: int = 8) -> str:
    return b.input("x", [1, channels, size, size])


@model(FLOAT)
def conv_relu_chain() -> onnx.ModelProto:
    """Three Conv + Relu, with stride and dilation."""
    b = Build()
    x = b.op("Relu", b.conv(image(b), 3, 8))
    x = b.op("Relu", b.conv(x, 8, 8, strides=[2, 2]))
    return b.model(b.op("Relu", b.conv(x, 8, 4, pads=[2] * 4, dilations=[2, 2])))


@model(FLOAT, BATCH_NORM)
def conv_bn_chain() -> onnx.ModelProto:
    """Conv + BN (+ Relu) with and without bias, with given and default epsilon."""
    b = Build()
    x = b.op("Relu", b.bn(b.conv(image(b), 3, 8, bias=False), 8))
    x = b.op("Relu", b.bn(b.conv(x, 8, 8), 8, epsilon=None))
    return b.model(b.bn(b.conv(x, 8, 4, k=1), 4, epsilon=0.1))


@model(FLOAT, BATCH_NORM)
def residual() -> onnx.ModelProto:
    """ResNet block: two Conv + BN and a projected shortcut, added, Relu."""
    b = Build()
    x = b.op("Relu", b.conv(image(b), 3, 6))
    main = b.op("Relu", b.bn(b.conv(x, 6, 8, strides=[2, 2], bias=False), 8))
    main = b.bn(b.conv(main, 8, 8, bias=False), 8)
    side = b.bn(b.conv(x, 6, 8, k=1, strides=[2, 2], bias=False), 8)
    return b.model(b.op("Relu", b.op("Add", main, side)))


@model(FLOAT, BATCH_NORM)
def depthwise_separable() -> onnx.ModelProto:
    """Depthwise and pointwise Conv + BN with Relu6, and a depthwise with multiplier 2."""
    b = Build()
    six = b.init(np.float32(6)), b.init(np.float32(0))
    x = b.op("Clip", b.bn(b.conv(image(b, 4), 4, 4, group=4, bias=False), 4), six[1], six[0])
    x = b.op("Clip", b.bn(b.conv(x, 4, 6, k=1, bias=False), 6), six[1], six[0])
    return b.model(b.bn(b.conv(x, 6, 12, group=6), 12))


@model(FLOAT, BATCH_NORM)
def grouped_conv_bn() -> onnx.ModelProto:
    """Conv with 2 and 4 groups, each followed by BN."""
    b = Build()
    x = b.op("Relu", b.bn(b.conv(image(b, 4), 4, 8, group=2), 8))
    return b.model(b.bn(b.conv(x, 8, 12, group=4, bias=False), 12))


def conv_transpose_bn_of(groups: int, cin: int, cout: int, bias: bool) -> onnx.ModelProto:
    b = Build()
    args = [image(b, cin, 5), b.weight(cin, cout // groups, 3, 3)]
    args += [b.init(b.random(cout))] if bias else []
    up = b.op("ConvTranspose", *args, group=groups, strides=[2, 2], pads=[1] * 4)
    return b.model(b.op("Relu", b.bn(up, cout)))


@model(FLOAT, BATCH_NORM)
def conv_transpose_bn() -> onnx.ModelProto:
    """ConvTranspose without groups + BN: output channels on weight axis 1."""
    return conv_transpose_bn_of(1, 4, 6, bias=True)


@model(FLOAT, BATCH_NORM)
def conv_transpose_groups_bn() -> onnx.ModelProto:
    """ConvTranspose with 2 groups + BN: output channels spread over weight axes 0 and 1."""
    return conv_transpose_bn_of(2, 4, 6, bias=False)


@model(FLOAT, BATCH_NORM)
def conv_transpose_depthwise_bn() -> onnx.ModelProto:
    """Depthwise ConvTranspose + BN: weight axis 1 has one element."""
    return conv_transpose_bn_of(4, 4, 4, bias=True)


@model(FLOAT, BATCH_NORM)
def conv1d_bn() -> onnx.ModelProto:
    """1-D Conv + BN + Relu, then MaxPool over time."""
    b = Build()
    x = b.op("Conv", b.input("x", [2, 3, 16]), b.weight(5, 3, 3), pads=[1, 1])
    return b.model(b.op("MaxPool", b.op("Relu", b.bn(x, 5)), kernel_shape=[2], strides=[2]))


@model(FLOAT, BATCH_NORM)
def conv3d_bn() -> onnx.ModelProto:
    """3-D Conv + BN."""
    b = Build()
    weight, bias = b.weight(4, 2, 3, 3, 3), b.init(b.random(4))
    return b.model(b.bn(b.op("Conv", b.input("x", [1, 2, 4, 5, 5]), weight, bias), 4))


@model(FLOAT)
def gemm_trans_b_0() -> onnx.ModelProto:
    """Gemm whose weight is [in, out]."""
    b = Build()
    return b.model(b.op("Gemm", b.input("x", [2, 6]), b.weight(6, 4), b.init(b.random(4))))


@model(FLOAT)
def gemm_trans_b_1() -> onnx.ModelProto:
    """Two Gemm whose weights are [out, in], the second without bias."""
    b = Build()
    x = b.op("Gemm", b.input("x", [2, 6]), b.weight(5, 6), b.init(b.random(5)), transB=1)
    return b.model(b.op("Gemm", b.op("Relu", x), b.weight(3, 5), transB=1))


@model(FLOAT)
def gemm_trans_a() -> onnx.ModelProto:
    """Gemm that transposes its input, and one that transposes a weight on the left."""
    b = Build()
    x = b.op("Gemm", b.input("x", [6, 2]), b.weight(6, 4), b.init(b.random(4)), transA=1)
    return b.model(b.op("Gemm", b.weight(2, 3), x, transA=1))


@model(FLOAT)
def gemm_alpha_beta() -> onnx.ModelProto:
    """Gemm with alpha and beta other than 1."""
    b = Build()
    args = b.input("x", [2, 6]), b.weight(4, 6), b.init(b.random(4))
    return b.model(b.op("Gemm", *args, alpha=0.5, beta=2.0, transB=1))


@model(FLOAT, BATCH_NORM)
def gemm_bn() -> onnx.ModelProto:
    """Gemm + BN for both transB, with bias, without, with alpha/beta and with a [1] bias."""
    b = Build()
    x = b.bn(b.op("Gemm", b.input("x", [3, 6]), b.weight(6, 5), b.init(b.random(5))), 5)
    x = b.bn(b.op("Gemm", b.op("Relu", x), b.weight(4, 5), transB=1), 4)
    x = b.op("Gemm", x, b.weight(4, 4), b.init(b.random(4)), transB=1, alpha=0.5, beta=-2.0)
    x = b.op("Gemm", b.bn(x, 4), b.weight(4, 3), b.init(b.random(1)))
    return b.model(b.bn(x, 3))


@model(FLOAT)
def matmul_3d() -> onnx.ModelProto:
    """MatMul of a 3-D activation with 2-D weights, twice."""
    b = Build()
    x = b.op("Relu", b.op("MatMul", b.input("x", [2, 5, 6]), b.weight(6, 8)))
    return b.model(b.op("MatMul", x, b.weight(8, 4)))


@model(FLOAT)
def matmul_bias_add() -> onnx.ModelProto:
    """MatMul + Add of a bias, on either side of the Add."""
    b = Build()
    x = b.op("Add", b.op("MatMul", b.input("x", [2, 5, 6]), b.weight(6, 8)), b.init(b.random(8)))
    return b.model(b.op("Add", b.init(b.random(4)), b.op("MatMul", x, b.weight(8, 4))))


@model(FLOAT, BATCH_NORM)
def matmul_bn() -> onnx.ModelProto:
    """2-D MatMul + BN, and MatMul + Add bias + BN."""
    b = Build()
    x = b.bn(b.op("MatMul", b.input("x", [3, 6]), b.weight(6, 5)), 5)
    x = b.op("Add", b.op("MatMul", x, b.weight(5, 4)), b.init(b.random(4)))
    return b.model(b.bn(x, 4))


@model(FLOAT, BATCH_NORM)
def matmul_3d_bn_over_time() -> onnx.ModelProto:
    """3-D MatMul + BN over axis 1: rows and columns are both 5, but columns must not be scaled."""
    b = Build()
    return b.model(b.bn(b.op("MatMul", b.input("x", [2, 5, 6]), b.weight(6, 5)), 5))


@model(FLOAT)
def conv_add_bias_channel() -> onnx.ModelProto:
    """Bias-less Conv + Add of a [C,1,1] constant, and of a [1,C,1,1] one on the left."""
    b = Build()
    x = b.op("Add", b.conv(image(b), 3, 4, bias=False), b.init(b.random(4, 1, 1)))
    return b.model(b.op("Add", b.init(b.random(1, 2, 1, 1)), b.conv(x, 4, 2, bias=False)))


@model(FLOAT)
def conv_add_bias_scalar() -> onnx.ModelProto:
    """Bias-less Conv + Add of a 0-d constant, then one of a [1] constant."""
    b = Build()
    x = b.op("Add", b.conv(image(b), 3, 4, bias=False), b.init(np.float32(0.7)))
    return b.model(b.op("Add", b.conv(x, 4, 2, bias=False), b.init(b.random(1))))


@model(FLOAT)
def conv_affine_chain() -> onnx.ModelProto:
    """Conv followed by per-channel Mul, Div, Add, Sub, with constants on both sides."""
    b = Build()
    x = b.op("Mul", b.conv(image(b), 3, 4), b.init(b.random(4, 1, 1)))
    x = b.op("Div", x, b.init(b.rng.uniform(0.5, 2.0, (1, 4, 1, 1))))
    x = b.op("Add", b.init(b.random(1, 4, 1, 1)), x)
    return b.model(b.op("Sub", b.init(b.random(4, 1, 1)), x))


@model(FLOAT)
def conv_add_not_a_bias() -> onnx.ModelProto:
    """Conv + Add of constants that vary over width or raise the rank: no bias can hold them."""
    b = Build()
    x = b.op("Add", b.conv(image(b), 3, 4, bias=False), b.init(b.random(8)))
    return b.model(b.op("Add", b.conv(x, 4, 2), b.init(b.random(2, 1, 2, 1, 1))))


@model(FLOAT, BATCH_NORM)
def bn_before_conv() -> onnx.ModelProto:
    """BN feeding an unpadded Conv: exact to fold forward."""
    b = Build()
    return b.model(b.op("Relu", b.conv(b.bn(image(b), 3), 3, 4, pads=[0] * 4)))


@model(FLOAT, BATCH_NORM)
def bn_before_conv_padded() -> onnx.ModelProto:
    """BN feeding a zero-padded Conv: the border makes folding the shift inexact."""
    b = Build()
    return b.model(b.conv(b.bn(image(b), 3), 3, 4))


@model(FLOAT, BATCH_NORM)
def bn_before_conv_auto_pad() -> onnx.ModelProto:
    """BN feeding a Conv padded by auto_pad, where `pads` is absent but the border is not."""
    b = Build()
    weight = b.weight(4, 3, 3, 3)
    return b.model(b.op("Conv", b.bn(image(b), 3), weight, auto_pad="SAME_UPPER", strides=[2, 2]))


@model(FLOAT, BATCH_NORM)
def bn_negative_zero_gamma() -> onnx.ModelProto:
    """Conv + BN with negative, zero and tiny gamma."""
    b = Build()
    x = b.bn(b.conv(image(b), 3, 4), 4, gamma=[-1.2, 0.0, 0.8, -1e-6])
    return b.model(b.bn(b.conv(b.op("Relu", x), 4, 3, bias=False), 3, gamma=[0.0, 0.0, -0.5]))


@model(FLOAT, BATCH_NORM)
def bn_conv_other_reader() -> onnx.ModelProto:
    """Conv read by its BN and by an Add; another Conv read by its BN and the graph output."""
    b = Build()
    conv = b.conv(image(b), 3, 4)
    x = b.op("Add", b.bn(conv, 4), conv)
    seen = b.conv(x, 4, 4, out="seen")
    return b.model(seen, b.bn(seen, 4))


@model(FLOAT, BATCH_NORM)
def bn_dynamic_weight() -> onnx.ModelProto:
    """Conv + BN whose weight is a graph input: nothing to fold into."""
    b = Build()
    weight = b.input("w", [4, 3, 3, 3])
    return b.model(b.bn(b.conv(image(b), 3, 4, weight=weight), 4))


@model(FLOAT, BATCH_NORM)
def qat_training_form() -> onnx.ModelProto:
    """Conv(W·f) → Div f → Add b → BN with f = gamma / sqrt(var + eps) given as a constant."""
    b = Build()
    x = image(b)
    for cin, cout in ((3, 4), (4, 5)):
        factor = b.rng.uniform(0.5, 1.5, cout).astype(np.float32)
        factor[0] *= -1
        scaled = b.op("Mul", b.weight(cout, cin, 3, 3), b.init(factor.reshape(-1, 1, 1, 1)))
        x = b.op("Div", b.conv(x, cin, cout, weight=scaled, bias=False),
                 b.init(factor.reshape(1, -1, 1, 1)))  # fmt: skip
        x = b.op("Relu", b.bn(b.op("Add", x, b.init(b.random(1, cout, 1, 1))), cout))
    return b.model(x)


@model(FLOAT, BATCH_NORM)
def shared_weight_one_bn() -> onnx.ModelProto:
    """One weight and bias used by two Conv, of which only the first has a BN."""
    b = Build()
    weight, bias = b.weight(3, 3, 3, 3, name="shared"), b.init(b.random(3))
    x = image(b)
    first = b.bn(b.op("Conv", x, weight, bias, pads=[1] * 4), 3)
    return b.model(first, b.op("Conv", x, weight, bias, pads=[1] * 4))


@model(FLOAT, BATCH_NORM)
def weight_behind_identity() -> onnx.ModelProto:
    """Conv + BN weights and BN statistics behind Identity nodes, shared as exporters merge them."""
    b = Build()
    one = b.init(np.ones(4, np.float32), "ones")
    weight = b.op("Identity", b.op("Identity", b.weight(4, 3, 3, 3)))
    x = b.conv(image(b), 3, 4, weight=weight, bias=False)
    gamma, var = b.op("Identity", one), b.op("Identity", one)
    beta = b.init(b.random(4))
    x = b.op("BatchNormalization", x, gamma, beta, b.op("Identity", beta), var)
    return b.model(x)


@model(FLOAT, BATCH_NORM)
def weight_behind_cast() -> onnx.ModelProto:
    """Conv + BN whose weight is stored in fp16 and cast to fp32."""
    b = Build()
    half = b.init(b.weight_values(4, 3, 3, 3).astype(np.float16))
    weight = b.op("Cast", half, to=TensorProto.FLOAT)
    return b.model(b.bn(b.conv(image(b), 3, 4, weight=weight), 4))


@model(FLOAT)
def weight_behind_transpose() -> onnx.ModelProto:
    """MatMul and Conv weights behind Transpose."""
    b = Build()
    weight = b.op("Transpose", b.weight(3, 3, 3, 4), perm=[3, 2, 0, 1])
    x = b.op("GlobalAveragePool", b.conv(image(b), 3, 4, weight=weight))
    dense = b.op("Transpose", b.weight(5, 4))
    return b.model(b.op("MatMul", b.op("Flatten", x), dense))


@model(FLOAT, BATCH_NORM)
def weight_behind_constant() -> onnx.ModelProto:
    """Conv + BN whose weight and bias are Constant nodes."""
    b = Build()
    weight, bias = b.constant(b.weight_values(4, 3, 3, 3)), b.constant(b.random(4))
    return b.model(b.bn(b.op("Conv", image(b), weight, bias), 4))


@model(FLOAT, BATCH_NORM)
def one_element_bias() -> onnx.ModelProto:
    """Conv with one output channel (bias [1]) + BN, then a Gemm whose bias [1] is broadcast."""
    b = Build()
    x = b.op("Flatten", b.bn(b.conv(image(b), 3, 1), 1))
    return b.model(b.op("Gemm", x, b.weight(64, 4), b.init(b.random(1))))
