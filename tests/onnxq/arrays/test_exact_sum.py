"""Sums without rounding: against fractions and math.fsum, in any order."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.arrays.exact_sum import ExactSum

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)


def total(values: list[float]) -> ExactSum:
    made = ExactSum(1)
    for value in values:
        made.add(np.array([value], np.float32))
    return made


@given(st.lists(FLOATS, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_the_mean_is_the_exact_one_rounded_once(values: list[float], random: object) -> None:
    exact = float(sum(map(Fraction, values)) / len(values))
    assert total(values).mean()[0] == exact
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert np.array_equal(total(shuffled).limbs, total(values).limbs)


@given(st.lists(FLOATS, max_size=6).map(lambda v: v + [-x for x in v] + [1e-45] * 2))
def test_what_cancels_leaves_the_smallest(values: list[float]) -> None:
    # A sum of 2^k numbers: the mean is the sum divided without rounding.
    padded = values + [0.0] * (16 - len(values))
    assert total(padded).mean()[0] * 16 == math.fsum(np.float32(v) for v in values)


@given(st.lists(FLOATS, min_size=2, max_size=20), st.integers(0, 20))
def test_parts_are_added(values: list[float], cut: int) -> None:
    one, two = total(values[:cut]), total(values[cut:])
    one.merge(two)
    assert one.count == len(values)
    assert np.array_equal(one.limbs, total(values).limbs)


def test_every_element_has_its_own_sum() -> None:
    made = ExactSum(3)
    for row in ([1, -2, 3e38], [2, -4, 3e38]):
        made.add(np.array(row, np.float32))
    assert made.mean().tolist() == [1.5, -3.0, float(np.float32(3e38))]
    assert ExactSum(2).mean().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("size", [0, 1, 2, 700, 5000])
def test_what_waits_is_in_the_sum(size: int) -> None:
    rows = np.random.default_rng(0).standard_normal((30, size)).astype(np.float32)
    made, given = ExactSum(size), np.empty(size, np.float32)
    for row in rows:
        given[:] = row  # the caller may write to its array again
        made.add(given)
    exact = [float(sum(map(Fraction, column.tolist())) / 30) for column in rows.T]
    assert made.mean().tolist() == exact
    assert made.count == 30


def test_limbs_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="not a sum"):
        ExactSum(2, np.zeros((10, 3), np.int64))
    with pytest.raises(ValueError, match="not a sum"):
        ExactSum(2, np.zeros((10, 2), np.float64))  # type: ignore[arg-type]
