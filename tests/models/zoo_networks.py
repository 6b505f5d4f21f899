"""Float models that resemble whole networks: attention, recurrence, heads, dynamic shapes, fp16."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from tests.models.zoo_build import Build, model
from tests.models.zoo_tags import BATCH_NORM, FLOAT, HALF


@model(FLOAT)
def pool_concat_flatten() -> onnx.ModelProto:
    """Inception-like: MaxPool, AveragePool and Conv branches, Concat, Flatten, Gemm, Softmax."""
    b = Build()
    x = b.op("Relu", b.conv(b.input("x", [1, 3, 8, 8]), 3, 4))
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    branches = [b.op("MaxPool", x, **window), b.op("AveragePool", x, **window)]
    branches.append(b.conv(x, 4, 4, strides=[2, 2]))
    flat = b.op("Flatten", b.op("Concat", *branches, axis=1))
    return b.model(b.op("Softmax", b.op("Gemm", flat, b.weight(192, 5)), axis=1))


@model(FLOAT)
def repeated_gemm() -> onnx.ModelProto:
    """Eight Gemm + Relu of one structure; every second one reuses the same weight and bias."""
    b = Build()
    x = b.input("x", [2, 6])
    shared = b.weight(6, 6), b.init(b.random(6))
    for i in range(8):
        weight, bias = shared if i % 2 else (b.weight(6, 6), b.init(b.random(6)))
        x = b.op("Relu", b.op("Gemm", x, weight, bias, transB=1))
    return b.model(x)


def attention(b: Build, x: str, width: int, heads: int) -> str:
    """softmax(Q Kᵀ / sqrt(d)) V over [batch, time, width]."""
    shape = b.ints(0, 0, heads, width // heads)
    q, k, v = (
        b.op("Transpose", b.op("Reshape", b.op("Add", b.op("MatMul", x, b.weight(width, width)),
                                               b.init(b.random(width))), shape), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )  # fmt: skip
    scores = b.op("Div", b.op("MatMul", q, k), b.init(np.float32((width / heads) ** 0.5)))
    mixed = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    joined = b.op("Reshape", b.op("Transpose", mixed, perm=[0, 2, 1, 3]), b.ints(0, 0, width))
    return b.op("MatMul", joined, b.weight(width, width))


@model(FLOAT)
def transformer_block() -> onnx.ModelProto:
    """Attention and Gelu feed-forward with LayerNormalization nodes."""
    b = Build(17)
    x = b.input("x", [2, 5, 8])
    norms = [(b.init(b.random(8)), b.init(b.random(8))) for _ in range(2)]
    x = b.op("Add", x, attention(b, b.op("LayerNormalization", x, *norms[0]), 8, 2))
    hidden = b.op("MatMul", b.op("LayerNormalization", x, *norms[1]), b.weight(8, 16))
    erf = b.op("Erf", b.op("Div", hidden, b.init(np.float32(2**0.5))))
    gelu = b.op("Mul", b.op("Mul", hidden, b.op("Add", erf, b.init(np.float32(1)))),
                b.init(np.float32(0.5)))  # fmt: skip
    return b.model(b.op("Add", x, b.op("MatMul", gelu, b.weight(16, 8))))


@model(FLOAT)
def transformer_spelled_layer_norm() -> onnx.ModelProto:
    """Attention with LayerNorm spelled out in ReduceMean, Sub, Pow, Add, Sqrt, Div, Mul."""
    b = Build(13)
    x = b.input("x", [2, 5, 8])
    centred = b.op("Sub", x, b.op("ReduceMean", x, axes=[-1]))
    var = b.op("ReduceMean", b.op("Pow", centred, b.init(np.float32(2))), axes=[-1])
    root = b.op("Sqrt", b.op("Add", var, b.init(np.float32(1e-5))))
    normed = b.op("Mul", b.op("Div", centred, root), b.init(b.random(8)))
    normed = b.op("Add", normed, b.init(b.random(8)))
    return b.model(b.op("Add", x, attention(b, normed, 8, 2)))


@model(FLOAT, BATCH_NORM)
def hard_swish_spelled() -> onnx.ModelProto:
    """Conv + BN + x·clip(x + 3, 0, 6)/6, then x·Sigmoid(x)."""
    b = Build()
    x = b.bn(b.conv(b.input("x", [1, 3, 6, 6]), 3, 4, bias=False), 4)
    three, zero, six = (b.init(np.float32(v)) for v in (3, 0, 6))
    gate = b.op("Div", b.op("Clip", b.op("Add", x, three), zero, six), six)
    x = b.conv(b.op("Mul", x, gate), 4, 4)
    return b.model(b.op("Mul", x, b.op("Sigmoid", x)))


@model(FLOAT)
def squeeze_excite() -> onnx.ModelProto:
    """GlobalAveragePool → 1×1 Conv → Relu → 1×1 Conv → HardSigmoid gates the Conv output."""
    b = Build()
    x = b.op("Relu", b.conv(b.input("x", [1, 3, 6, 6]), 3, 8))
    gate = b.op("Relu", b.conv(b.op("GlobalAveragePool", x), 8, 2, k=1))
    gate = b.op("HardSigmoid", b.conv(gate, 2, 8, k=1))
    return b.model(b.op("Mul", x, gate))


@model(FLOAT)
def upsample_shuffle() -> onnx.ModelProto:
    """Conv → DepthToSpace → Conv → Resize ×2, as in super resolution."""
    b = Build()
    x = b.op("DepthToSpace", b.conv(b.input("x", [1, 3, 4, 4]), 3, 8), blocksize=2)
    x = b.op("LeakyRelu", b.conv(x, 2, 2), alpha=0.1)
    scales = b.init(np.array([1, 1, 2, 2], np.float32))
    return b.model(b.op("Resize", x, "", scales, mode="nearest"))


@model(FLOAT)
def lstm() -> onnx.ModelProto:
    """LSTM with bias and omitted optional inputs, two of its three outputs used."""
    b = Build()
    x, hidden = b.input("x", [4, 2, 3]), 5
    args = [b.weight(1, 4 * hidden, 3), b.weight(1, 4 * hidden, hidden)]
    args.append(b.init(b.random(1, 8 * hidden, scale=0.1)))
    seq, _, cell = b.ops("LSTM", x, *args, outs=["seq", "", "cell"], hidden_size=hidden)
    return b.model(b.op("Squeeze", seq, b.ints(1)), cell)


@model(FLOAT)
def gather_where() -> onnx.ModelProto:
    """Integer and bool inputs: embedding Gather, a mask through Where, an integer output."""
    b = Build()
    tokens = b.input("tokens", [2, 5], TensorProto.INT64)
    mask = b.input("mask", [2, 5, 6], TensorProto.BOOL)
    embedded = b.op("Gather", b.weight(8, 6), tokens)
    kept = b.op("Where", mask, embedded, b.init(np.float32(0)))
    scores = b.op("MatMul", kept, b.weight(6, 4))
    return b.model(scores, b.op("ArgMax", scores, axis=-1), b.op("Not", mask))


@model(FLOAT, BATCH_NORM)
def dynamic_batch() -> onnx.ModelProto:
    """Symbolic batch through Conv + BN, GlobalAveragePool, Flatten and Gemm."""
    b = Build()
    x = b.op("Relu", b.bn(b.conv(b.input("x", ["N", 3, 8, 8]), 3, 4), 4))
    flat = b.op("Flatten", b.op("GlobalAveragePool", x))
    return b.model(b.op("Gemm", flat, b.weight(4, 3), b.init(b.random(3))))


@model(FLOAT, BATCH_NORM)
def dynamic_height_width() -> onnx.ModelProto:
    """Unnamed batch, symbolic H and W, and a Shape → Slice → Concat → Reshape tail."""
    b = Build()
    x = b.bn(b.conv(b.input("x", [None, 3, "H", "W"]), 3, 4, bias=False), 4)
    batch = b.op("Slice", b.op("Shape", x), b.ints(0), b.ints(1))
    return b.model(b.op("Reshape", x, b.op("Concat", batch, b.ints(4, -1), axis=0)))


@model(FLOAT, BATCH_NORM, HALF)
def half_conv_bn() -> onnx.ModelProto:
    """Conv + BN + Relu + Gemm computed in float16."""
    b = Build()
    x = b.input("x", [1, 3, 6, 6], TensorProto.FLOAT16)
    half = [
        b.init(v.astype(np.float16))
        for v in (b.weight_values(4, 3, 3, 3), b.random(4), b.random(4), b.random(4),
                  b.random(4), np.abs(b.random(4)) + 0.5)
    ]  # fmt: skip
    x = b.op("BatchNormalization", b.op("Conv", x, *half[:2]), *half[2:])
    dense = b.init(b.weight_values(64, 3).astype(np.float16))
    return b.model(b.op("Gemm", b.op("Flatten", b.op("Relu", x)), dense))
