"""Weights in front of quantizers, and cutting them without moving a code."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.quantized_weights import clamp, quantized_weights
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from tests.models.build import parse, quantize, weight


def test_only_constants_count() -> None:
    model = parse(
        "g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1,2,3,4}> { y = MatMul(x, w) }"
    )
    weight(quantize(model, "x"), "w")
    ((node, params, values),) = quantized_weights(model)
    assert (node.inputs[0].name, params.tensor, values.shape) == ("w", "w", (2, 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("zero_point", [0, -3])
def test_clamping_moves_no_code(dtype: type, zero_point: int) -> None:
    values = np.random.default_rng(0).normal(0, 9, (3, 40)).astype(dtype)
    scale = np.float16([0.013, 0.07, 0.11]).astype(np.float32)
    params = QParams("w", qtype("int8"), scale, zero_point, axis=0, lo=-100, hi=90)
    cut, moved = clamp(params, values)
    assert isinstance(cut, np.ndarray)
    assert cut.dtype == dtype
    assert moved == np.count_nonzero(cut != values) > 0
    np.testing.assert_array_equal(params.quantize(cut), params.quantize(values))
    low, high = (end[:, None] for end in params.range)
    assert (cut >= low - scale[:, None] / 2).all()
    assert (cut <= high + scale[:, None] / 2).all()
