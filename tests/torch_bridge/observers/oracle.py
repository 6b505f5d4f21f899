"""What observers should give, written once more in float64 numpy, and the specs they run with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from onnxq.quant.qtypes import qtype
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers import Observer


def make_spec(
    kind: str = "int8", *, symmetric: bool = True, axis: int | None = None, **more: Any
) -> QuantizerSpec:
    """A spec over the whole range of a type, unless lo and hi are given."""
    of = qtype(kind)
    more = {"lo": of.lo, "hi": of.hi, **more}
    return QuantizerSpec(qtype=of, symmetric=symmetric, axis=axis, **more)


SPECS = {
    "int8": make_spec(),
    "int8-channel": make_spec(axis=0),
    "narrow": make_spec(lo=-127, hi=127),
    "uint8": make_spec("uint8", symmetric=False),
    "uint8-channel": make_spec("uint8", symmetric=False, axis=1),
    "uint8-zero": make_spec("uint8"),
    "int4-channel": make_spec("int4", axis=-1),
    "uint16": make_spec("uint16", symmetric=False),
    "pot": make_spec(power_of_two=True),
    "block": make_spec("int4", axis=1, block=2),
}


def scale_and_zero(low: Any, high: Any, spec: QuantizerSpec) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point of a range that is not all zero."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if spec.symmetric:
        if spec.lo < 0:
            scale = np.maximum(abs(low), abs(high)) / ((spec.hi - spec.lo) / 2)
        else:
            scale = np.maximum(high, 0) / spec.hi
    else:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = (high - low) / (spec.hi - spec.lo)
    if spec.power_of_two:
        scale = 2.0 ** np.rint(np.log2(scale))
    steps = (low / scale).astype(np.float32)  # restores ties
    zero = np.zeros(scale.shape) if spec.symmetric else spec.lo - np.rint(steps)
    return scale.astype(np.float32), np.clip(zero, spec.lo, spec.hi).astype(np.int32)


def error(x: np.ndarray, low: Any, high: Any, spec: QuantizerSpec, power: float = 2) -> float:
    """Error of a tensor on the grid of a range, as float32 computes the grid."""
    scale, zero = scale_and_zero(low, high, spec)
    codes = np.clip(np.rint(x / scale) + zero, spec.lo, spec.hi)
    return float((abs((codes - zero) * scale.astype(np.float64) - x) ** power).sum())


def assert_gives(observer: Observer, low: Any, high: Any, *, exact: bool = True) -> None:
    """Check scale and zero point of an observer against those of a range."""
    scale, zero_point = observer.calculate()
    want_scale, want_zero = scale_and_zero(low, high, observer.spec)
    assert (scale.dtype, zero_point.dtype) == (torch.float32, torch.int32)
    assert scale.shape == zero_point.shape == want_scale.shape
    np.testing.assert_allclose(scale.numpy(), want_scale, rtol=0 if exact else 1e-6)
    np.testing.assert_array_equal(zero_point.numpy(), want_zero)


def batches(count: int = 3, shape: tuple[int, ...] = (4, 6, 5), seed: int = 0) -> list[Any]:
    """Batches of growing and shifting normal values."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) * (1 + i) + 0.3 * i for i in range(count)]
