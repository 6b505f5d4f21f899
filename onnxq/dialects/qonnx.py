"""The operators of QONNX in numpy, and ranges of codes as QONNX writes them.

    Quant         y = (round(clamp(x / s + z, lo, hi)) - z) * s
    BipolarQuant  y = s if x >= 0, else -s
    Trunc         y = (round(round(x / s + z) / 2^t) - z') * s'

Everything is float32, the zero point is added before rounding, and round is one of several modes.
A range is a number of bits b, with or without sign, and narrow or not:

    signed    -2^(b-1) .. 2^(b-1) - 1       narrow: -2^(b-1) + 1 .. 2^(b-1) - 1
    unsigned         0 .. 2^b - 1           narrow:            0 .. 2^b - 2
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from onnxq.quant.qparams import Array

DOMAIN = "qonnx.custom_op.general"
DOMAINS = (DOMAIN, "finn.custom_op.general", "onnx.brevitas")
"""The domain written, and the ones that older exporters used."""


def _away(values: Array) -> Array:
    return np.copysign(np.ceil(np.abs(values)), values)


def _half_away(values: Array) -> Array:
    """Nearest, halves away from zero; without x + 0.5, which rounds 0.49999997 up."""
    whole = np.trunc(values)
    return np.where(np.abs(values - whole) >= 0.5, whole + np.sign(values), whole)


def _half_to_zero(values: Array) -> Array:
    whole = np.trunc(values)
    return np.where(np.abs(values - whole) > 0.5, whole + np.sign(values), whole)


HALF_EVEN = "ROUND"
ROUNDING: Mapping[str, Callable[[Array], Array]] = {
    HALF_EVEN: np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": _away,
    "DOWN": np.trunc,
    "ROUND_TO_ZERO": np.trunc,
    "HALF_UP": _half_away,
    "HALF_DOWN": _half_to_zero,
}
"""Rounding modes by their name in upper case; UP and DOWN mean away from zero and towards it."""


def quant_range(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """The lowest and highest code."""
    if signed:
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def bits_of(lo: int, hi: int, signed: bool) -> tuple[int, bool] | None:
    """The number of bits and narrowness whose range is lo..hi; None if there is none."""
    for narrow in (False, True):
        bits = (hi + (narrow and not signed)).bit_length() + signed
        if quant_range(bits, signed, narrow) == (lo, hi) and bits > signed:  # signed 1 bit: bipolar
            return bits, narrow
    return None


def codes(x: Array, scale: Array, zero: Array, lo: int, hi: int, mode: str) -> Array:
    """The codes that Quant gives `x`, as float32; parameters broadcast against it."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.asarray(x, np.float32) / scale + zero
    return ROUNDING[mode](np.clip(steps, np.float32(lo), np.float32(hi)))


def quant(x: Array, scale: Array, zero: Array, lo: int, hi: int, mode: str) -> Array:
    """The result of Quant for `x`."""
    return np.asarray((codes(x, scale, zero, lo, hi, mode) - zero) * scale, np.float32)


def bipolar_quant(x: Array, scale: Array) -> Array:
    """The result of BipolarQuant for `x`."""
    return np.asarray(np.where(x >= 0, np.float32(1), np.float32(-1)) * scale, np.float32)


def truncated(x: Array, scale: Array, zero: Array, factor: float, mode: str) -> Array:
    """The codes that Trunc gives `x` before they are clamped: those of `x`, divided by `factor`."""
    steps = np.rint(np.asarray(x, np.float32) / scale + zero)
    return np.asarray(ROUNDING[mode](steps / np.float32(factor)), np.float32)
