"""Ranges from counts: against numpy, against brute force in float64, and the known traps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxq.errors import OptionError
from onnxq.observing.range_methods import METHODS, Method, Seen
from onnxq.observing.tensor_statistics import TensorStatistics, Wanted
from onnxq.quant.grid_of_range import grid_numbers
from onnxq.quant.scheme import QSpec

UINT8 = QSpec(("uint8",))
INT8 = QSpec(("int8",), symmetric=True, lo=-127)
INT16 = QSpec(("int16",), symmetric=True)
INT4 = QSpec(("int4",), symmetric=True)
UINT4 = QSpec(("uint4",))
SPECS = (UINT8, INT8, INT16, INT4, UINT4, QSpec(("int8",)))

RNG = np.random.default_rng(1)
NORMAL = RNG.normal(size=40_000)
SHAPES = {
    "normal": NORMAL,
    "shifted": NORMAL + 3,
    "relu": np.maximum(NORMAL, 0),
    "mostly zero": np.where(RNG.random(40_000) < 0.95, 0, np.abs(NORMAL)),
    "laplace": RNG.laplace(size=40_000),
    "far tail": np.concatenate([NORMAL, [80.0, -60.0]]),
    "negative": -np.abs(NORMAL),
    "two values": np.where(NORMAL > 0, 7.5, 0.0),
    "tiny": NORMAL * 1e-18,
    "huge": NORMAL * 1e37,
}


def seen(values: np.ndarray, wanted: Wanted = Wanted()) -> Seen:  # noqa: B008
    made = TensorStatistics(wanted)
    made.add(values)
    return made.seen


def error(values: np.ndarray, low: float, high: float, spec: QSpec) -> float:
    """The true squared error of a range."""
    lo, hi = spec.range
    scale, zero = grid_numbers(np.float64(low), np.float64(high), spec)
    codes = np.clip(np.rint(values / scale) + zero, lo, hi)
    return float((((codes - zero) * scale - values) ** 2).sum())


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", METHODS)
def test_ranges_contain_zero_and_lie_within_the_extremes(
    name: str, shape: str, spec: QSpec
) -> None:
    values = SHAPES[shape].astype(np.float32)
    low, high = Method(name).range(seen(values), spec)
    assert min(values.min(), 0) <= low <= 0 <= high <= max(values.max(), 0)
    assert low < high


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("percent", [51, 90, 99, 99.9, 99.99, 100])
def test_percentiles_are_those_of_the_sorted_values_within_a_bin(
    shape: str, percent: float
) -> None:
    values = SHAPES[shape].astype(np.float32)
    found = Method("percentile", percent).range(seen(values), UINT8)
    ranked = np.sort(values).astype(np.float64)
    left_out = int((100 - percent) / 200 * ranked.size)
    # One rank to either side: definitions differ at whole numbers of values.
    ranks = [rank for rank in range(left_out - 1, left_out + 2) if rank >= 0]
    near = (np.minimum(ranked[ranks], 0), np.maximum(ranked[::-1][ranks], 0))
    for end, true in zip(found, near, strict=True):
        bin_width = 2.0**-7 * abs(end) + 2.0**-48
        assert true.min() - bin_width <= end <= true.max() + bin_width


def best_by_force(values: np.ndarray, spec: QSpec) -> float:
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    shares = np.linspace(1.0, 0.1, 40)
    if spec.symmetric:
        return min(error(values, low * s, high * s, spec) for s in shares)
    return min(error(values, low * s, high * t, spec) for s in shares[::2] for t in shares[::2])


@pytest.mark.parametrize("spec", [UINT8, INT8, INT4, UINT4], ids=str)
@pytest.mark.parametrize("shape", ["normal", "shifted", "relu", "laplace", "mostly zero"])
def test_mse_is_as_good_as_brute_force(shape: str, spec: QSpec) -> None:
    values = SHAPES[shape].astype(np.float32).astype(np.float64)[:8000]
    low, high = Method("mse").range(seen(values), spec)
    found, best = error(values, low, high, spec), best_by_force(values, spec)
    # The values of a bin are taken at its middle, and candidates are a few percent apart.
    assert found <= 1.1 * best


def test_mse_clips_a_far_tail_only_where_that_pays() -> None:
    values = SHAPES["far tail"]
    narrow = Method("mse").range(seen(values), INT4)
    assert narrow[1] < 40
    assert Method("mse").range(seen(values), INT16) == (-60.0, 80.0)


@pytest.mark.parametrize("spec", [UINT8, INT8], ids=str)
@pytest.mark.parametrize("shape", ["relu", "mostly zero"])
def test_entropy_is_not_drawn_to_zero_by_many_zeros(shape: str, spec: QSpec) -> None:
    values = SHAPES[shape]
    _, high = Method("entropy").range(seen(values), spec)
    assert high >= np.percentile(values[values > 0], 99)


def test_entropy_leaves_out_a_far_tail() -> None:
    values = np.concatenate([NORMAL, [80.0]])
    low, high = Method("entropy").range(seen(values), INT8)
    assert 2.5 < high < 20
    assert low == pytest.approx(values.min(), rel=1e-6)


def test_entropy_of_uniform_values_keeps_nearly_all() -> None:
    _, high = Method("entropy").range(seen(RNG.random(60_000)), UINT8)
    assert high > 0.9


def test_entropy_has_no_opinion_on_both_signs_or_many_levels() -> None:
    values = SHAPES["far tail"]
    assert Method("entropy").range(seen(values), UINT8) == (-60.0, 80.0)
    assert Method("entropy").range(seen(values), INT16) == (-60.0, 80.0)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("value", [0.0, 2.5, -1e-30, 3e38, -3e38, 1e-44])
def test_a_constant_tensor(name: str, value: float) -> None:
    for spec in SPECS:
        low, high = Method(name).range(seen(np.full(10, value, np.float32)), spec)
        one = float(np.float32(value))
        assert min(one, 0.0) <= low <= 0.0 <= high <= max(one, 0.0)
        if name != "mse":
            assert (low, high) == (min(one, 0.0), max(one, 0.0))


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)


@given(
    arrays.arrays(np.float32, st.integers(1, 30), elements=FLOATS),
    st.sampled_from(sorted(METHODS)),
    st.sampled_from(SPECS),
)
def test_no_values_make_a_method_fail_or_warn(values: np.ndarray, name: str, spec: QSpec) -> None:
    low, high = Method(name).range(seen(values), spec)
    assert min(values.min(), 0) <= low <= 0 <= high <= max(values.max(), 0)


@pytest.mark.parametrize("name", METHODS)
def test_without_values_there_is_no_range(name: str) -> None:
    with pytest.raises(ValueError, match="no value was seen"):
        Method(name).range(seen(np.zeros(0)), UINT8)


@pytest.mark.parametrize("name", ["percentile", "mse", "entropy"])
def test_without_a_distribution_only_extremes_are_known(name: str) -> None:
    known = seen(np.abs(NORMAL), Wanted(distribution=False))
    assert Method("min-max").range(known, UINT8)[1] == np.float32(np.abs(NORMAL).max())
    with pytest.raises(ValueError, match="only the extremes"):
        Method(name).range(known, UINT8)


def test_moving_average() -> None:
    made = TensorStatistics(Wanted())
    for top in (1.0, 2.0, 6.0):
        made.add(np.array([-top / 2, top], np.float32))
    assert Method("moving-average").range(made.seen, UINT8) == (-1.5, 3.0)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mse", "mse"),
        ("min-max", "min-max"),
        ("percentile", "percentile:99.999"),
        ("percentile:99.9", "percentile:99.9"),
    ],
)
def test_text_form(text: str, shown: str) -> None:
    assert str(Method.parse(text)) == shown
    assert Method.parse(shown) == Method.parse(text)


@pytest.mark.parametrize(
    "text",
    ["msee", "percentile:x", "percentile:50", "percentile:101", "mse:3", "", "percentile:nan"],
)
def test_what_is_no_method_is_an_error(text: str) -> None:
    with pytest.raises(OptionError) as error:
        Method.parse(text)
    assert error.value.fix


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(OptionError) as error:
        Method.parse("entrpy")
    assert "entropy" in error.value.fix
