"""Models whose fake quantization is composed of elementary operators, as tools write it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx

from tests.models.zoo_build import Build, channel_scale, model, tensor_scale
from tests.models.zoo_tags import DIALECTS

STEP = 0.03


def composed(
    b: Build,
    x: str,
    scale: npt.ArrayLike,
    zero: float,
    lo: float,
    hi: float,
    *,
    stated: bool = True,
) -> str:
    """clamp(round(x / s) + z, lo, hi) with its way back; a zero point of 0 may be left out."""
    step, shift = b.init(np.asarray(scale, np.float32)), b.init(np.float32(zero))
    q = b.op("Round", b.op("Div", x, step))
    q = b.op("Add", q, shift) if stated else q
    q = b.op("Clip", q, b.init(np.float32(lo)), b.init(np.float32(hi)))
    return b.op("Mul", b.op("Sub", q, shift) if stated else q, step)


@model(DIALECTS)
def composed_cnn() -> onnx.ModelProto:
    """As a torch module exports: uint8 activations, narrow int8 weights per channel, no bias."""
    b = Build(17)
    x = composed(b, b.input("x", [1, 3, 6, 6]), STEP, 128, 0, 255)
    for cin, cout in ((3, 6), (6, 4)):
        weight = b.weight_values(cout, cin, 3, 3)
        scale = channel_scale(weight, 0).reshape(-1, 1, 1, 1)
        fake = composed(b, b.init(weight), scale, 0, -127, 127)
        x = b.op("Relu", b.conv(x, cin, cout, weight=fake, bias=False))
        x = composed(b, x, STEP, 0, 0, 255, stated=False)
    return b.model(x)


@model(DIALECTS)
def composed_noise() -> onnx.ModelProto:
    """Casts, Identity, Max and Min with converted constants, a weight divided by the exporter."""
    b = Build(18)
    x = b.input("x", [2, 5])
    step = b.init(np.float32(STEP))
    q = b.op("Round", b.op("Identity", b.op("Div", x, step)))
    low, high = (b.op("Cast", b.constant(np.int64(v)), to=1) for v in (-128, 127))
    q = b.op("Min", b.op("Max", q, b.op("CastLike", low, q)), b.op("CastLike", high, q))
    x = b.op("Mul", b.op("Cast", b.op("Cast", q, to=3), to=1), step)
    weight = b.weight_values(5, 4)
    scale = np.float32(tensor_scale(weight, 7))
    ends = (b.init(np.float32(v)) for v in (-7, 7))
    codes = b.op("Clip", b.op("Round", b.init(weight / scale)), *ends)
    return b.model(b.op("MatMul", x, b.op("Mul", codes, b.init(scale))))


@model(DIALECTS)
def composed_folded_weight() -> onnx.ModelProto:
    """The exporter has computed the weight: one that lies on a grid, and one that does not."""
    b = Build(17)
    x = composed(b, b.input("x", [2, 8]), STEP, 0, -128, 127)
    weight = b.weight_values(8, 6)
    scale = channel_scale(weight, 1)
    x = b.op("MatMul", x, b.init(np.rint(weight / scale).astype(np.float32) * scale))
    x = composed(b, x, STEP, 0, -128, 127)
    return b.model(b.op("MatMul", x, b.init(b.weight_values(6, 4))))


@model(DIALECTS)
def composed_power_of_two() -> onnx.ModelProto:
    """Multiplied by 1/s, which is exact, and clamped in front of Round and in front of it all."""
    b = Build(13)
    x = b.op("Mul", b.input("x", [2, 3, 4]), b.init(np.float32(16)))
    x = b.op("Round", b.op("Clip", x, b.init(np.float32(-8)), b.init(np.float32(7))))
    x = b.op("Mul", x, b.init(np.float32(0.0625)))
    x = b.op("Clip", x, b.init(np.float32(-0.25)), b.init(np.float32(0.25)))
    x = b.op("Round", b.op("Div", x, b.init(np.float32(0.125))))
    return b.model(b.op("Mul", x, b.init(np.float32(0.125))))
