"""Conv + pool + reshape networks in the spelling of each opset generation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tests.models.zoo_build import Build, model
from tests.models.zoo_tags import BATCH_NORM, FLOAT


def stem(b: Build) -> str:
    return b.bn(b.conv(b.input("x", [1, 3, 8, 8]), 3, 4), 4)


def attribute_tail(b: Build, x: str) -> str:
    """Squeeze, Unsqueeze and ReduceMean with axes as an attribute (before 13 / 18)."""
    x = b.op("ReduceMean", x, axes=[2], keepdims=1)
    return b.op("Squeeze", b.op("Unsqueeze", b.op("Squeeze", x, axes=[2]), axes=[0]), axes=[0])


def split(b: Build, x: str, *lengths: str, **attrs: Any) -> str:
    """Split channels in two and swap the halves."""
    left, right = b.ops("Split", x, *lengths, outs=[b.fresh("left"), b.fresh("right")], **attrs)
    return b.op("Concat", right, left, axis=1)


@model(FLOAT, BATCH_NORM)
def opset_9() -> onnx.ModelProto:
    """Opset 9: Upsample, and Clip, Pad, Slice, Split, Squeeze, ReduceMean by attributes."""
    b = Build(9)
    x = b.op("Clip", stem(b), min=0.0, max=6.0)
    x = b.op("Pad", x, pads=[0, 0, 1, 1, 0, 0, 1, 1], mode="constant", value=0.5)
    x = b.op("Slice", split(b, x, axis=1, split=[2, 2]), axes=[2, 3], starts=[0, 1], ends=[8, 9])
    x = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.op("Upsample", x, b.init(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    return b.model(b.op("Softmax", b.op("Reshape", attribute_tail(b, x), b.ints(1, -1)), axis=1))


@model(FLOAT, BATCH_NORM)
def opset_10() -> onnx.ModelProto:
    """Opset 10: two-input Resize, Slice by inputs, Clip and Pad still by attributes."""
    b = Build(10)
    x = b.op("Clip", stem(b), min=0.0)
    x = b.op("Pad", x, pads=[0] * 8, mode="constant")
    x = b.op("Slice", x, b.ints(0, 0), b.ints(6, 6), b.ints(2, 3))
    x = b.op("Resize", x, b.init(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    x = b.op("AveragePool", split(b, x, axis=1), kernel_shape=[2, 2], strides=[2, 2])
    return b.model(attribute_tail(b, x), b.op("Dropout", x))


@model(FLOAT, BATCH_NORM)
def opset_11() -> onnx.ModelProto:
    """Opset 11: Clip, Pad and Resize by inputs; Softmax flattens from its axis."""
    b = Build(11)
    x = b.op("Clip", stem(b), b.init(np.float32(0)), b.init(np.float32(6)))
    x = b.op("Pad", x, b.ints(0, 0, 1, 0, 0, 0, 1, 0), b.init(np.float32(0)))
    sizes = b.ints(1, 4, 6, 6)
    empty = b.init(np.zeros(0, np.float32))
    x = b.op("Resize", x, empty, empty, sizes, mode="linear")
    return b.model(attribute_tail(b, x), b.op("Softmax", x, axis=1))


@model(FLOAT, BATCH_NORM)
def opset_12() -> onnx.ModelProto:
    """Opset 12: Constant(value_float) bounds, Gemm head, axes still attributes."""
    b = Build(12)
    x = b.op("Clip", stem(b), b.op("Constant", value_float=0.0), b.op("Constant", value_float=4.0))
    x = b.op("GlobalAveragePool", split(b, x, axis=1, split=[1, 3]))
    x = b.op("Squeeze", x, axes=[2, 3])
    return b.model(b.op("Gemm", x, b.weight(5, 4), b.init(b.random(5)), transB=1))


@model(FLOAT, BATCH_NORM)
def opset_13() -> onnx.ModelProto:
    """Opset 13: Squeeze, Unsqueeze and Split by inputs, ReduceMean by attribute."""
    b = Build(13)
    x = split(b, b.op("Relu", stem(b)), b.ints(3, 1), axis=1)
    x = b.op("Squeeze", b.op("ReduceMean", x, axes=[2]), b.ints(2))
    return b.model(b.op("Softmax", b.op("Unsqueeze", x, b.ints(0)), axis=-1))


@model(FLOAT, BATCH_NORM)
def opset_17() -> onnx.ModelProto:
    """Opset 17: Resize without roi, Reshape with 0 and -1."""
    b = Build(17)
    x = b.op("MaxPool", b.op("Relu", stem(b)), kernel_shape=[2, 2], strides=[2, 2])
    scales = b.init(np.array([1, 1, 2, 2], np.float32))
    x = b.op("Resize", x, "", scales, mode="cubic")
    return b.model(b.op("Reshape", x, b.ints(0, -1)))


@model(FLOAT, BATCH_NORM)
def opset_21() -> onnx.ModelProto:
    """Opset 21: ReduceMean axes by input, Split by num_outputs, Pad with axes, Gelu."""
    b = Build(21)
    x = split(b, b.op("Gelu", stem(b)), axis=1, num_outputs=2)
    x = b.op("Pad", x, b.ints(1, 1, 1, 1), "", b.ints(2, 3))
    return b.model(b.op("ReduceMean", x, b.ints(2, 3), keepdims=0))
