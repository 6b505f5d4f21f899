"""A layer whose weight has scales along the axis that is summed over."""

from __future__ import annotations

import numpy as np

from onnxq.graph import Model
from tests.models.build import parse, quantize, tensor, weight


def off_axis_product() -> Model:
    """MatMul of a square weight with one scale per row: as many as columns, and far apart."""
    zeros = ", ".join(["0"] * 64)
    model = parse(
        f"g (float[4,8] x) => (float[4,8] y) <float[8,8] w = {{{zeros}}}> {{ y = MatMul(x, w) }}"
    )
    tensor(model, "w").values = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    scales = np.float32(0.02) * np.float32(2) ** np.arange(8)
    quantize(model, "x", scale=np.float32(0.0625))
    weight(model, "w", scale=scales, zero_point=np.zeros(8, int), axis=0, lo=-127)
    return quantize(model, "y", scale=np.float32(0.25))
