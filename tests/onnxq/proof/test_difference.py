"""The statistics of one tensor."""

from __future__ import annotations

import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from onnxq.errors import VerifyError
from onnxq.proof.difference import RunningDiff, TensorDiff, Tolerance
from onnxq.proof.step_size import StepSize


def diff(
    *pairs: tuple[object, object],
    step: float | None = None,
    dtype: object = np.float32,
    tolerance: Tolerance | None = None,
) -> TensorDiff:
    running = RunningDiff("t", "u", None if step is None else StepSize(np.asarray(step)))
    for a, b in pairs:
        running.add(np.asarray(a, dtype), np.asarray(b, dtype))
    return running.result("Conv", "conv1", tolerance or Tolerance())


def test_statistics_gather_over_samples() -> None:
    d = diff(([0, 0], [0, 1]), ([0, 0, 0, 0], [2, 0, 0, 0.4]), step=1)
    assert (d.max, d.count, d.moved) == (2, 6, pytest.approx(2 / 6))
    assert d.mean == pytest.approx(3.4 / 6)
    assert (d.name, d.other, d.op, d.node) == ("t", "u", "Conv", "conv1")


def test_rounding_of_the_values_is_not_a_difference() -> None:
    scale = np.float32(0.1)
    codes = np.arange(-32768, 32767)
    exact, rounded = codes * np.float64(scale), (codes * scale).astype(np.float32)
    d = diff((rounded, exact.astype(np.float32)), step=float(scale))
    assert (d.max, d.moved) == (0, 0)
    d = diff((rounded, ((codes + 1) * scale).astype(np.float32)), step=float(scale))
    assert (d.max, d.mean) == (1, 1)
    # but what rounding cannot explain stays
    d = diff((np.float32(1), np.float32(1.001)), step=1.0)
    assert d.max == pytest.approx(1e-3, rel=1e-3)


def test_coarse_types_never_hide_half_a_step() -> None:
    d = diff(([100.0], [100.5]), step=1.0, dtype=ml_dtypes.bfloat16)
    assert (d.max, d.moved) == (0.5, 1)


@pytest.mark.parametrize(
    ("a", "b", "mismatches"),
    [
        ([math.nan, 1], [math.nan, 1], 0),
        ([math.nan, 1], [0, 1], 1),
        ([math.inf, -math.inf], [math.inf, -math.inf], 0),
        ([math.inf, -math.inf], [-math.inf, -math.inf], 1),
        ([math.inf, 0], [math.nan, math.inf], 2),
    ],
)
@pytest.mark.parametrize("step", [None, 0.5])
def test_nonfinite_values(
    a: list[float], b: list[float], mismatches: int, step: float | None
) -> None:
    d = diff((a, b), step=step)
    assert (d.nonfinite, d.max, d.count) == (mismatches, 0, 2)
    assert d.passed == (mismatches == 0)
    assert d.severity == (math.inf if mismatches else 0)


def test_relative_error_is_taken_over_all_samples() -> None:
    d = diff(([0.0], [0.001]), ([10.0], [10.0]))
    assert d.unit == "relative"
    assert d.max == pytest.approx(1e-4)
    assert d.passed
    assert diff(([0.0], [0.0])).max == 0


def test_large_integers_that_float64_cannot_tell_apart_still_differ() -> None:
    d = diff(([1 << 60], [(1 << 60) + 1]), dtype=np.int64)
    assert (d.unit, d.moved, d.passed) == ("exact", 1, False)
    assert diff(([1 << 60], [1 << 60]), dtype=np.int64).passed


def test_empty_tensors_are_equal() -> None:
    d = diff((np.zeros((0, 3)), np.zeros((0, 3))))
    assert (d.count, d.max, d.mean, d.moved, d.passed) == (0, 0, 0, 0, True)


def test_shapes_and_kinds_must_agree() -> None:
    running = RunningDiff("t", "u", None)
    with pytest.raises(VerifyError, match=r"'t' is float32\[2\].*'u' is float32\[3\]"):
        running.add(np.zeros(2, np.float32), np.zeros(3, np.float32))
    with pytest.raises(VerifyError, match=r"'t' is float32.*int8"):
        running.add(np.zeros(2, np.float32), np.zeros(2, np.int8))


def test_tolerances_and_severity() -> None:
    moved = diff((np.zeros(100), np.eye(100)[0] * 2), step=1)
    assert (moved.severity, moved.passed) == (2, False)
    wide = diff((np.zeros(100), np.eye(100)[0] * 2), step=1, tolerance=Tolerance(max_steps=4))
    assert (wide.severity, wide.passed) == (1, True)  # one element in a hundred, as allowed
    none = diff(([0.0], [0.0]), step=1, tolerance=Tolerance(0, 0, 0))
    assert none.passed
    assert not diff(([0.0], [1.0]), step=1, tolerance=Tolerance(0, 1, 0)).passed


def test_single_elements_may_be_far_off_where_the_mean_is_held() -> None:
    by = Tolerance(math.inf, 1, math.inf, max_mean_steps=0.1, max_mean_relative=0.1)
    one = np.eye(100, dtype=np.float32)[0]
    assert diff((0 * one, 5 * one), step=1, tolerance=by).severity == pytest.approx(0.5)
    assert not diff((0 * one, 15 * one), step=1, tolerance=by).passed
    ones = np.ones(100)
    assert diff((ones, ones + 5 * one), tolerance=by).severity == pytest.approx(0.5)
    assert not diff((ones, ones + 15 * one), tolerance=by).passed


def test_json_is_plain() -> None:
    record = diff(([1.0], [2.0])).to_json()
    assert record["max"] == 1.0
    assert record["passed"] is False
    assert all(isinstance(v, (str, int, float, bool, type(None))) for v in record.values())


def test_the_mean_may_be_limited_by_what_the_trusted_values_span() -> None:
    """Values 0..10 within a grid of many more steps: off by 1 on average is a tenth."""
    gathered = RunningDiff("a", "b", None)
    gathered.add(np.float32([100, 110]), np.float32([101, 109]))
    limits = Tolerance(max_relative=1.0, max_mean_spread=0.0999)
    found = gathered.result("", "", limits)
    assert np.isclose(found.mean_spread, 0.1)
    assert not found.passed
    assert gathered.result("", "", Tolerance(max_relative=1.0, max_mean_spread=0.1001)).passed
    assert gathered.result("", "", Tolerance(max_relative=1.0)).passed


def test_values_that_became_one_are_told_from_those_that_were() -> None:
    limits = Tolerance(max_relative=1.0, max_mean_spread=1.0)
    for trusted, collapsed in (([0.0, 1.0], True), ([1.0, 1.0], False)):
        gathered = RunningDiff("a", "b", None)
        gathered.add(np.float32(trusted), np.zeros(2, np.float32))
        found = gathered.result("", "", limits)
        assert found.collapsed == collapsed
        assert found.passed != collapsed


def test_what_the_trusted_values_are_like_is_told() -> None:
    d = diff(([2, 2], [2, 3]), ([2], [2]))
    assert (d.constant, d.source_nan) == (True, 0)
    assert not diff(([2, 2], [2, 2]), ([1], [2])).constant
    assert not diff(([2], [2])).constant  # one value tells nothing
    d = diff(([math.nan, 1, math.nan], [math.nan, 1, 0]))
    assert (d.source_nan, d.nonfinite) == (2, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("steps", [None, np.asarray(0.25), np.array([0.25, 0.5, 1.0])])
def test_pieces_add_up_to_the_whole(dtype: object, steps: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    shape = (7, 3, 5003)  # more than one piece, and not a multiple of it
    a = rng.integers(-40, 40, shape) * 0.25
    b = a + rng.integers(-2, 3, shape) * (rng.random(shape) < 0.1)
    a[0, 0, 5], a[6, 1, 7], b[6, 1, 7], b[3, 2, 1] = np.inf, np.nan, np.nan, -np.inf
    step = None if steps is None else StepSize(steps, axis=1)
    running = RunningDiff("t", "t", step)
    running.add(np.asarray(a, dtype), np.asarray(b, dtype))
    found = running.result("", "", Tolerance())
    finite = np.isfinite(a) & np.isfinite(b)
    unit = np.broadcast_to(1.0 if step is None else step.along(shape), shape)[finite]
    delta = np.abs(a - b)[finite]
    size = np.abs(a[finite]).max() if step is None else 1.0
    assert (found.count, found.finite, found.source_nan) == (a.size, a.size - 3, 1)
    assert found.nonfinite == 2
    assert found.max == pytest.approx((delta / unit).max() / size)
    assert found.mean == pytest.approx((delta / unit).mean() / size)
    assert found.moved == np.count_nonzero(delta / unit >= (0.5 if steps is not None else 1e-9)) / (
        a.size
    )
    assert found.mean_spread == pytest.approx(delta.mean() / np.ptp(a[finite]))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize("step", [None, StepSize(np.asarray(0.5)), StepSize(np.ones(64), axis=0)])
def test_memory_does_not_grow_with_the_tensor(dtype: type, step: StepSize | None) -> None:
    a = np.ones((64, 1 << 16), dtype)
    b = a + np.ones((), dtype)
    running = RunningDiff("t", "t", step)
    tracemalloc.start()
    try:
        running.add(a, b)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20  # a copy in float64 alone takes 32 MiB


FINE = Tolerance(max_fine_steps=0.25)


def on_grid(bits: int, *steps_off: float, tolerance: Tolerance = FINE) -> TensorDiff:
    """Values that differ by so many steps of a grid with step 1."""
    running = RunningDiff("t", "u", StepSize(np.ones(()), bits=bits))
    running.add(np.zeros(len(steps_off)), np.array(steps_off))
    return running.result("", "", tolerance)


@pytest.mark.parametrize(
    ("bits", "off", "passes"),
    [
        (16, [64.0] + [0.0] * 7, True),
        (16, [65.0] + [0.0] * 8, False),
        (16, [8.0] * 9, True),  # an eighth of it on average: what is always off is a fault
        (16, [9.0] * 9, False),
        (14, [16.0] + [0.0] * 7, True),
        (14, [17.0] + [0.0] * 8, False),
        (12, [1.0] * 9, False),  # more than a hundredth of the elements
        (8, [2.0] + [0.0] * 200, False),
        (8, [1.0] + [0.0] * 200, True),
    ],
)
def test_fine_grids_are_judged_in_steps_of_8_bits(
    bits: int, off: list[float], passes: bool
) -> None:
    assert on_grid(bits, *off).passed is passes


def test_fine_grids_are_nothing_special_unless_asked_for() -> None:
    assert not on_grid(16, 1.0, 1.0, tolerance=Tolerance()).passed
    wide = Tolerance(max_steps=1024.0, max_moved=1.0, max_fine_steps=0.25)
    assert on_grid(16, 1024.0, tolerance=wide).passed, "a wider limit stays"


@pytest.mark.parametrize(
    ("single", "others", "passes"),
    [
        (7e-3, 0.0, True),
        (7e-3, 5e-4, True),
        (8e-3, 0.0, False),
        (2e-3, 2e-3, False),  # the average is beyond what is tolerated
        (1e-3, 1e-3, True),
    ],
)
def test_single_elements_without_a_step_may_have_flipped(
    single: float, others: float, passes: bool
) -> None:
    off = np.full(20, others)
    off[3] = single
    running = RunningDiff("t", "u", None)
    running.add(np.ones(20), np.ones(20) - off)
    limits = Tolerance(max_relative=1.0001e-3, max_single_relative=1 / 127.5)
    assert running.result("", "", limits).passed is passes
    if single > 1e-3:
        assert not running.result("", "", Tolerance()).passed
