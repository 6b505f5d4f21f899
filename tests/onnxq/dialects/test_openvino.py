"""Ends and levels to scale and zero point: exact where they were written from these."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.dialects import openvino
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype

COUNT = 4000


def grids(kind: str, lo: int, hi: int, zero: int) -> QParams:
    """Many channels of one grid, with scales of every size."""
    random = np.random.default_rng(hi - lo + zero)
    scale = random.uniform(1, 2, COUNT) * 2.0 ** random.integers(-30, 10, COUNT)
    return QParams(
        "x", qtype(kind), scale.astype(np.float32), np.full(COUNT, zero), axis=0, lo=lo, hi=hi
    )


GRIDS = [
    ("int8", -128, 127, 0),
    ("int8", -127, 127, 0),
    ("uint8", 0, 255, 0),
    ("uint8", 0, 255, 131),
    ("uint8", 0, 255, 255),
    ("int8", -8, 7, 3),
    ("int8", -1, 1, 0),
    ("int16", -32768, 32767, 0),
    ("uint16", 0, 65535, 31007),
]


@pytest.mark.parametrize(("kind", "lo", "hi", "zero"), GRIDS)
def test_grid_comes_back_from_its_ends(kind: str, lo: int, hi: int, zero: int) -> None:
    params = grids(kind, lo, hi, zero)
    low, high = openvino.ends(params)
    levels = hi - lo + 1
    level = openvino.zero_level(low, high, levels)
    assert level is not None
    np.testing.assert_array_equal(level, zero - lo)
    scale = openvino.grid_scale(low, high, levels, level)
    # Two scales may have the same ends; the one found has them, and is the next one at most.
    for have, want in zip(openvino.ends(params.with_(scale=scale)), (low, high), strict=True):
        np.testing.assert_array_equal(have, want)
    apart = np.abs(scale.view(np.int32).astype(np.int64) - params.scale.view(np.int32))
    assert apart.max() <= 1
    assert np.mean(apart > 0) < 0.02


def test_a_power_of_two_of_steps_to_an_end_tells_the_scale_exactly() -> None:
    params = grids("int8", -128, 127, 0)
    low, high = openvino.ends(params)
    scale = openvino.grid_scale(low, high, 256, np.full(COUNT, 128))
    assert scale.tobytes() == params.scale.tobytes()


def test_one_end_rounded_otherwise_leaves_the_scale_of_the_other() -> None:
    params = grids("int8", -128, 127, 0)
    low, high = openvino.ends(params)
    high = np.nextafter(high, np.float32(0))  # what low + 255 * s gives in float32
    level = openvino.zero_level(low, high, 256)
    assert level is not None
    scale = openvino.grid_scale(low, high, 256, level)
    assert scale.tobytes() == params.scale.tobytes()


@pytest.mark.parametrize("share", [0.5, 0.01, 0.001])
def test_zero_between_two_levels_is_no_zero_point(share: float) -> None:
    low, high = np.float32(-(100 + share) * 0.1), np.float32((155 - share) * 0.1)
    assert openvino.zero_level(np.asarray(low), np.asarray(high), 256) is None


@pytest.mark.parametrize(
    ("level", "levels", "kind", "lo"),
    [
        (0, 256, "uint8", 0),
        (0, 16, "uint8", 0),
        (128, 256, "int8", -128),
        (127, 255, "int8", -127),
        (8, 16, "int8", -8),
        (100, 256, "uint8", 0),
        (32768, 65536, "int16", -32768),
        (5, 1000, "uint16", 0),
    ],
)
def test_type_of_the_codes(level: int, levels: int, kind: str, lo: int) -> None:
    found = openvino.codes(np.asarray(level), levels)
    assert (found.kind.name, found.lo) == (kind, lo)


def test_channels_share_one_type() -> None:
    assert openvino.codes(np.array([128, 128]), 256).lo == -128
    assert openvino.codes(np.array([128, 3]), 256).lo == 0
