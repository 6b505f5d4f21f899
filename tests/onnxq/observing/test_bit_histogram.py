"""Counts by bits: every value in its bin, exact extremes, and merging in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxq.observing import bit_histogram
from onnxq.observing.bit_histogram import ZERO, BitHistogram, lower_edges

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)
VALUES = arrays.arrays(np.float32, st.integers(0, 60), elements=FLOATS)


def counted(*parts: np.ndarray) -> BitHistogram:
    made = BitHistogram()
    for part in parts:
        made.add(part)
    return made


def same(a: BitHistogram, b: BitHistogram) -> bool:
    mine, other = a.state(), b.state()
    return all(
        np.asarray(mine[key]).tobytes() == np.asarray(other[key]).tobytes() for key in mine | other
    )


@given(VALUES)
def test_every_value_lies_within_its_bin(values: np.ndarray) -> None:
    made = counted(values)
    lower, upper, counts = made.bins()
    assert counts.sum() == made.total == values.size
    assert np.all(lower <= upper)
    assert np.all(upper[:-1] <= lower[1:])
    for low, high, count in zip(lower, upper, counts, strict=True):
        # Bins of one sign hold their end next to 0 and not the other; that of 0 holds both.
        held = np.sum((values.astype(np.float64) >= low) & (values <= high))
        assert held >= count
    if values.size:
        assert made.low == values.min()
        assert made.high == values.max()
        assert made.is_finite
    wide = (np.abs(lower) > 2.0**-47) & (np.abs(upper) > 2.0**-47)
    width = (upper - lower)[wide]
    assert np.all(width <= 2.0**-7 * np.minimum(np.abs(lower), np.abs(upper))[wide])


@given(st.lists(VALUES, max_size=5), st.randoms(use_true_random=False), st.integers(0, 5))
def test_any_order_and_any_division_give_the_same_state(
    parts: list[np.ndarray], random: object, cut: int
) -> None:
    whole = counted(*parts)
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, two = counted(*shuffled[:cut]), counted(*shuffled[cut:])
    two.merge(one)
    assert same(whole, two)
    assert same(whole, BitHistogram.from_state(two.state()))


def test_zero_has_no_sign() -> None:
    zeros = np.array([0.0], np.float32)
    assert same(counted(zeros, -zeros), counted(-zeros, zeros))
    assert not np.signbit(counted(-zeros).low)


def test_edges_are_the_float32_with_these_upper_bits() -> None:
    values = np.array([-3.0, -1e-20, 0.0, 1e-20, 1.0, 1.0078125, 3.4e38], np.float32)
    lower, upper, counts = counted(values).bins()
    assert counts.tolist() == [1, 3, 1, 1, 1]
    assert lower[2:4].tolist() == [1.0, 1.0078125]
    assert upper[2] == 1.0078125
    assert lower_edges(np.array([ZERO, ZERO + 1])).tolist() == [-(2.0**-48), 2.0**-48]


@pytest.mark.parametrize("size", [65536, 65537, 300_000, 3 * 65536])
def test_of_large_arrays_a_part_is_counted_and_the_extremes_are_exact(size: int) -> None:
    values = np.random.default_rng(0).normal(size=size).astype(np.float32)
    values[size // 2], values[7] = 50.0, -60.0
    made = counted(values)
    assert (made.low, made.high) == (-60.0, 50.0)
    assert size / 6 <= made.total <= bit_histogram.MOST_COUNTED
    lower, upper, counts = made.bins()
    middle = np.average((lower + upper) / 2, weights=counts)
    assert abs(middle) < 5 / np.sqrt(made.total)


def test_infinity_and_nan_are_seen() -> None:
    assert not counted(np.array([1, np.inf], np.float32)).is_finite
    assert not counted(np.array([1, np.nan], np.float32)).is_finite
    assert not BitHistogram().is_finite


@pytest.mark.parametrize(
    "change", [{"first": -1}, {"first": 2 * ZERO}, {"counts": np.ones((2, 2), np.int64)}]
)
def test_a_state_that_is_none_is_refused(change: dict[str, object]) -> None:
    state = counted(np.array([1.0, 2.0], np.float32)).state()
    with pytest.raises(ValueError, match="histogram"):
        BitHistogram.from_state(state | change)
