"""MQBench's private operators: their spelling, and the arithmetic of torch behind them.

    learnable, fixed    q = clamp(R(x * (1/s)) + z, lo, hi)      y = (q - z) * s
    dsq                 q = R(clamp(x/s + z, lo, hi))            (the soft steps of training,
                        phi(v) = floor(v) + tanh(k(v - floor(v) - 1/2)) * t/2 + 1/2, grow from
                        floor(v) to floor(v) + 1 and are half way when v is: R(phi(v)) = R(v))
    tqt                 q = clamp(R(x / S), lo, hi), S = 2^ceil(log2 s); y = q * S

Float32 throughout. The canonical form divides, while the first kind multiplies by the reciprocal;
it adds z after rounding, while the second adds it before. So a value within one float rounding of
half way between two codes may get the other neighbour. For constants it is known which.

Bounds come as inputs or as the attributes quant_min and quant_max.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.quant.qparams import Array, QParams


class Operator(NamedTuple):
    """The form of one operator: its kind, and the inputs after x, scale and zero point."""

    kind: str
    per_channel: bool
    after: tuple[str, ...] = ("quant_min", "quant_max")


PER_TENSOR = "LearnablePerTensorAffine"
PER_CHANNEL = "FakeQuantizeLearnablePerchannelAffine"
PER_CHANNEL_OF_AXIS = "FixedPerChannelAffine"
LOGARITHMIC = "NNIEQuantize"

OPERATORS = {
    PER_TENSOR: Operator("learnable", False),
    "FakeQuantizeLearnablePerTensorAffine": Operator("learnable", False),
    PER_CHANNEL: Operator("learnable", True),
    "FixedPerTensorAffine": Operator("fixed", False),
    PER_CHANNEL_OF_AXIS: Operator("fixed", True, ("ch_axis", "quant_min", "quant_max")),
    "FakeQuantizeDSQPertensor": Operator("dsq", False),
    "FakeQuantizeDSQPerchannel": Operator("dsq", True),
    "FakeQuantizeTqtAffine": Operator("tqt", False),
}
"""The operators of linear grids."""


def implied_axis(quantized: gs.Tensor) -> int | None:
    """The axis of per-channel scales that are written without one; None if consumers disagree.

    Training counts along axis 1 for ConvTranspose and along axis 0 for everything else, since
    torch keeps output channels first. A Transpose between the quantizer and its layer comes from
    the exporter and does not change that.
    """
    axes = {1 if consumer.op == "ConvTranspose" else 0 for consumer in quantized.outputs}
    return None if len(axes) > 1 else max(axes, default=0)


def power_of_two(scale: Array) -> Array:
    """The scale that tqt computes with: 2^-floor(log2(1/s)), and 1 if s is below 2^-15."""
    # s = m * 2^e with 1/2 <= m < 1, so ceil(log2 s) is e, and e - 1 if m is 1/2: all exact.
    mantissa, exponent = np.frexp(scale)
    power = np.ldexp(np.float32(1), np.where(mantissa == 0.5, exponent - 1, exponent))
    return np.where(scale < 2.0**-15, np.float32(1), power).astype(np.float32)


def on_grid(value: Array, params: QParams, kind: str) -> Array:
    """The constant `value` on the grid, in the arithmetic of torch."""
    if kind == "tqt":  # division by a power of two
        return params.fake(value)
    scale, zero = params.broadcast(value.shape)
    zero = zero.astype(np.float32)
    x, lo, hi = value.astype(np.float32), np.float32(params.lo or 0), np.float32(params.hi or 0)
    with np.errstate(over="ignore"):
        if kind == "dsq":
            codes = np.rint(np.clip(x / scale + zero, lo, hi))
        else:
            codes = np.clip(np.rint(x * (np.float32(1) / scale)) + zero, lo, hi)
    return np.asarray((codes - zero) * scale, np.float32)
