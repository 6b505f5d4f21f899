"""Quantized models in the rarer forms of Q/DQ: float8, other grids at both ends, codes outside."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tests.models.zoo_build import Build, channel_scale, model
from tests.models.zoo_qdq import STEP, UINT8, image, stored_conv
from tests.models.zoo_tags import BATCH_NORM, QDQ

E4M3, E5M2 = TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2


def stored_e4m3(b: Build, cout: int, cin: int) -> str:
    """float8e4m3fn codes of a weight, per output channel, behind a DequantizeLinear."""
    weight = b.weight_values(cout, cin, 3, 3)
    scale = channel_scale(weight, 0) * np.float32(127 / 448)
    codes = (weight / scale.reshape(-1, 1, 1, 1)).astype(ml_dtypes.float8_e4m3fn)
    name = b.fresh("weight_codes")
    zero = b.codes(np.zeros(cout), E4M3)
    stored = b.init(numpy_helper.from_array(codes, name), name)
    return b.op("DequantizeLinear", stored, b.init(scale), zero, axis=0)


@model(QDQ, BATCH_NORM)
def qdq_float8() -> onnx.ModelProto:
    """float8: activations of two types, a stored per-channel weight, BatchNormalization after."""
    b = Build(19)
    x = b.qdq(image(b), 0.01, 0, E4M3)
    x = b.bn(b.op("Conv", x, stored_e4m3(b, 4, 3), pads=[1, 1, 1, 1]), 4)
    x = b.op("MaxPool", b.qdq(b.op("Relu", x), 0.001, 0, E5M2), kernel_shape=[2, 2])
    weight = b.qdq(b.weight(4, 4, 1, 1), 0.003, 0, E4M3)
    return b.model(b.qdq(b.op("Conv", x, weight), 0.02, 0, E4M3))


@model(QDQ)
def qdq_requantized() -> onnx.ModelProto:
    """Codes read with another scale, another zero point, both, and per channel."""
    b = Build(13)
    x = image(b)
    step, zero = b.init(np.float32(STEP)), b.codes(120, UINT8)
    q = b.op("QuantizeLinear", x, step, zero)
    scaled = b.op("DequantizeLinear", q, b.init(np.float32(0.071)), zero)
    shifted = b.op("DequantizeLinear", q, step, b.codes(3, UINT8))
    scales = b.init(np.float32([0.3, 0.001, 0.02]))
    channels = b.op("DequantizeLinear", q, scales, b.codes([0, 120, 255], UINT8), axis=1)
    plain = b.op("DequantizeLinear", q, step, zero)
    return b.model(b.op("Sum", scaled, shifted), b.op("Relu", channels), b.op("Neg", plain))


@model(QDQ)
def qdq_codes_outside() -> onnx.ModelProto:
    """Codes enter as a graph input and leave as graph outputs, one of them dequantized as well."""
    b = Build(13)
    codes = b.input("codes", [1, 3, 4, 4], UINT8)
    step, zero = b.init(np.float32(STEP)), b.codes(2, UINT8)
    x = b.op("DequantizeLinear", codes, step, zero)
    y = stored_conv(b, x, 3, 4)
    q = b.op("QuantizeLinear", b.op("Relu", y), step, zero)
    alone = b.op("QuantizeLinear", b.op("Neg", y), b.init(np.float32(0.05)), b.codes(9, UINT8))
    return b.model(q, b.op("DequantizeLinear", q, step, zero), alone)


@model(QDQ)
def qdq_int8_bias() -> onnx.ModelProto:
    """A bias of int8 codes with a scale of its own, and codes behind Identity and an idle Cast."""
    b = Build(13)
    step, zero = b.init(np.float32(STEP)), b.codes(128, UINT8)
    q = b.op("Cast", b.op("Identity", b.op("QuantizeLinear", image(b), step, zero)), to=UINT8)
    x = b.op("DequantizeLinear", q, step, zero)
    weight = b.weight_values(4, 3, 1, 1)
    bias = b.op(
        "DequantizeLinear", b.codes([5, -7, 100, 0], TensorProto.INT8), b.init(np.float32(0.01))
    )
    args = b.stored(weight, channel_scale(weight, 0), axis=0), bias
    return b.model(b.qdq(b.op("Conv", x, *args), STEP))
