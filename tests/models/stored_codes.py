"""A model around stored codes."""

from __future__ import annotations

import numpy as np

from onnxq.graph import Model, from_proto
from tests.models.zoo_build import Build


def stored(codes: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, **attrs: int) -> Model:
    """x * DQ(codes)"""
    b = Build(21)
    args = [b.init(codes), b.init(scale), *([] if zero is None else [b.init(zero)])]
    w = b.op("DequantizeLinear", *args, **attrs)
    b.typed_output(b.op("Mul", b.input("x", codes.shape), w), codes.shape)
    return from_proto(b.model())
