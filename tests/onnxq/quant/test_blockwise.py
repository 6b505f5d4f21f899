"""Questions about a grid have the same answers in blocks as in one piece."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.arrays import pieces
from onnxq.quant.blockwise import code_ends, keeps, same_codes
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype

RNG = np.random.default_rng(0)
X = RNG.normal(0, 1, (6, 10)).astype(np.float32)
INT8 = qtype("int8")
GRIDS = [
    QParams("w", INT8, 0.02, 3),
    QParams("w", INT8, RNG.uniform(0.01, 0.05, 10), RNG.integers(-9, 9, 10), axis=1),
    QParams("w", INT8, RNG.uniform(0.01, 0.05, 6), RNG.integers(-9, 9, 6), axis=-2),
    QParams("w", INT8, RNG.uniform(0.01, 0.05, (6, 3)), np.ones((6, 3)), axis=1, block=4),
    QParams("w", INT8, RNG.uniform(0.01, 0.05, (2, 10)), np.ones((2, 10)), axis=0, block=3),
    QParams("w", qtype("float8e4m3fn"), 0.02, 0),
]


@pytest.fixture(params=[3, 7, 20, 1000])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(pieces, "PIECE", request.param)
    return int(request.param)


@pytest.mark.parametrize("params", GRIDS)
def test_codes_and_values_are_those_of_the_whole(
    params: QParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, values = params.quantize(X), params.fake(X)
    assert np.array_equal(params.dequantize(codes), values)
    for size in (3, 7, 20):
        monkeypatch.setattr(pieces, "PIECE", size)
        found = params.quantize(X)
        assert found.dtype == codes.dtype
        assert np.array_equal(found, codes)
        assert np.array_equal(params.quantize(X, params.qtype.dtype), codes.astype(found.dtype))
        assert np.array_equal(params.dequantize(codes), values)
        assert np.array_equal(params.fake(X), values)
        assert params.fake(X, np.float16).dtype == np.float16


@pytest.mark.parametrize("params", GRIDS)
def test_what_lies_on_the_grid(params: QParams, piece: int) -> None:
    values = params.fake(X).copy()
    assert keeps(params, values)
    values[5, 9] += 0.4 * params.scale.max()
    assert not keeps(params, values)


@pytest.mark.parametrize("params", GRIDS)
def test_codes_that_are_the_same(params: QParams, piece: int) -> None:
    other = X.copy()
    assert same_codes(params, X, other)
    other[5, 9] += 3 * params.scale.max()
    assert not same_codes(params, X, other)


@pytest.mark.parametrize("params", GRIDS[:-1])
def test_the_ends_of_moved_codes(params: QParams, piece: int) -> None:
    shift = np.arange(params.scale.size).reshape(params.scale.shape)
    codes = params.quantize(X) + params.spread(shift, X.shape, (slice(None),) * 2)
    assert code_ends(params, X, shift) == (codes.min(), codes.max())
    assert code_ends(QParams("w", INT8, 0.02, 3), X[:0], np.zeros(())) == (0, 0)


def test_equal_zero_points_of_many_scales_are_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    scale, zero = RNG.uniform(0.01, 0.05, (2, 10)), np.full((2, 10), 5, np.int8)
    whole = QParams("w", INT8, scale, zero, axis=0, block=3)
    monkeypatch.setattr(pieces, "PIECE", 16)
    for given in (zero, 5):
        params = QParams("w", INT8, scale, given, axis=0, block=3)
        assert params == whole
        assert params.zero_point.strides == (0, 0)
        assert np.array_equal(params.quantize(X), whole.quantize(X))
        assert np.array_equal(params.with_(lo=-100).zero_point, zero)
    other = zero.copy()
    other[1, 9] = 6
    assert QParams("w", INT8, scale, other, axis=0, block=3).zero_point[1, 9] == 6
