"""What is kept of one tensor: extremes, rows, channels, and nothing that depends on the order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from onnxq.observing.tensor_statistics import TensorStatistics, Wanted

RNG = np.random.default_rng(0)


def taken(wanted: Wanted, *samples: np.ndarray) -> TensorStatistics:
    made = TensorStatistics(wanted)
    for sample in samples:
        made.add(sample)
    return made


def state(made: TensorStatistics) -> dict[str, bytes]:
    return {key: np.asarray(value).tobytes() for key, value in made.state().items()}


SAMPLES = [RNG.normal(size=(2, 3, 4)).astype(np.float32) * k for k in (1, 5, 0.1, 0)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
@pytest.mark.parametrize("cut", [0, 1, 2, 4])
def test_any_division_and_order(order: tuple[int, ...], cut: int) -> None:
    wanted = Wanted(channels=1, rows=-1, spread=True)
    samples = [SAMPLES[i] for i in order]
    one, two = taken(wanted, *samples[:cut]), taken(wanted, *samples[cut:])
    one.merge(two)
    assert state(one) == state(taken(wanted, *SAMPLES))
    assert state(TensorStatistics.from_state(wanted, one.state())) == state(one)


def test_a_merge_leaves_the_other_part_as_it_was() -> None:
    wanted = Wanted(channels=1, spread=True)
    one, two = taken(wanted, SAMPLES[0]), taken(wanted, SAMPLES[1])
    before = state(one)
    whole = TensorStatistics(wanted)
    whole.merge(one)
    whole.merge(two)
    assert state(one) == before


def test_channels_against_numpy() -> None:
    found = taken(Wanted(channels=1, spread=True), *SAMPLES).channels
    assert found is not None
    whole = np.stack(SAMPLES)
    assert np.array_equal(found.low, whole.min(axis=(0, 1, 3)))
    assert np.array_equal(found.high, whole.max(axis=(0, 1, 3)))
    exact = whole.astype(np.float64)
    np.testing.assert_allclose(found.sum.mean(), exact.mean(axis=(0, 1, 3)), atol=1e-7)
    np.testing.assert_allclose(found.squares.mean(), (exact**2).mean(axis=(0, 1, 3)), rtol=1e-6)


def test_rows_of_a_softmax() -> None:
    rows = np.array([[1.0, -5.0], [-2.0, -3.0], [9.0, 0.0]], np.float32)
    made = taken(Wanted(rows=-1), rows, rows + 1)
    assert made.row_top == -2.0


@pytest.mark.parametrize("sizes", [(3, 4, 3), (4, 3, 3), (3, 3, 4)])
def test_an_axis_of_changing_size_does_not_count_channels(sizes: tuple[int, ...]) -> None:
    samples = [np.ones((1, size), np.float32) for size in sizes]
    wanted = Wanted(channels=1, spread=True)
    whole = taken(wanted, *samples)
    parts = taken(wanted, samples[0])
    for sample in samples[1:]:
        parts.merge(taken(wanted, sample))
    for made in (whole, parts):
        assert made.channels is not None
        assert made.channels.sum.count == made.channels.low.size == 0
    assert state(whole) == state(parts)


def test_the_average_of_extremes() -> None:
    made = taken(Wanted(), np.array([-1, 3], np.float32), np.array([-2, 1], np.float32))
    assert made.seen.average == (-1.5, 2.0)


def test_empty_arrays_change_nothing() -> None:
    made = taken(Wanted(channels=1, spread=True), np.zeros((0, 3), np.float32))
    assert made.is_empty
    assert state(made) == state(TensorStatistics(Wanted(channels=1, spread=True)))


def test_zero_has_no_sign() -> None:
    wanted, zero = Wanted(channels=1, rows=1), np.zeros((1, 2), np.float32)
    assert state(taken(wanted, zero, -zero)) == state(taken(wanted, -zero, zero))


def test_only_the_extremes() -> None:
    made = taken(Wanted(distribution=False), *SAMPLES)
    assert made.histogram.total == 0
    assert made.histogram.high == np.max(SAMPLES)


@pytest.mark.parametrize(
    ("value", "named"), [(np.nan, "NaN"), (np.inf, "infinity"), (np.float64(1e300), "infinity")]
)
def test_what_is_not_finite_is_refused(value: float, named: str) -> None:
    with pytest.raises(FloatingPointError, match=named):
        taken(Wanted(), np.array([1.0, value]))


def test_squares_of_large_values_stay_finite() -> None:
    made = taken(Wanted(channels=0, spread=True), np.full((1, 2), 3e38, np.float32))
    assert made.channels is not None
    assert made.channels.squares.mean()[0] == np.finfo(np.float32).max


def test_joined_keeps_what_either_needs() -> None:
    joined = Wanted(channels=1, distribution=False).joined(Wanted(rows=-1))
    assert joined == Wanted(1, -1, True)
