"""Grids within a target's rules: equal where that is claimed, near and measured elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxq.canonical.grid_fit import clamp_error, covering_fit, exact_fit, largest_error, lost_clamp
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.quant.scheme_text import parse_rules

POINTS = np.linspace(-60, 60, 4001, dtype=np.float32)


def grid(kind: str, scale: Any = 0.1, zero: Any = 0, **fields: Any) -> QParams:
    return QParams("t", qtype(kind), np.float32(scale), np.array(zero), **fields)


def clipped(x: np.ndarray, clip: tuple[float, float] | None) -> np.ndarray:
    return x if clip is None else np.clip(x, np.float32(clip[0]), np.float32(clip[1]))


@pytest.mark.parametrize(
    ("params", "rules", "says"),
    [
        (grid("uint8", zero=128), "int8 symmetric", ("int8", -128, 127, 0)),
        (grid("int8"), "uint8", ("uint8", 0, 255, 128)),
        (grid("uint4", zero=8), "int4 symmetric", ("int4", -8, 7, 0)),
        (grid("int4", zero=-3), "int8", ("int8", -128, 127, -3)),
        (grid("uint8", zero=100, lo=0, hi=200), "int8 symmetric", ("int8", -100, 100, 0)),
        (grid("int8", lo=-127), "int8 full-range", ("int8", -128, 127, 0)),
        (grid("int8", [0.1, 0.1], [0, 0], axis=0), "int8 symmetric", ("int8", -128, 127, 0)),
    ],
)
def test_activations_keep_every_value(params: QParams, rules: str, says: tuple[Any, ...]) -> None:
    spec = parse_rules(rules)
    fit = exact_fit(params, spec)
    assert fit is not None
    new = fit.params
    assert (new.qtype.name, new.lo, new.hi, int(new.zero_point)) == says
    assert not list(spec.violations(new))
    x = POINTS if params.axis is None else np.stack([POINTS, POINTS])
    np.testing.assert_array_equal(new.fake(clipped(x, fit.clip)), params.fake(x))


@pytest.mark.parametrize(
    ("params", "rules"),
    [
        (grid("uint8", zero=3), "int8 symmetric"),  # 252 steps up
        (grid("int16"), "int8"),
        (grid("int8", 0.1), "int8 power-of-two"),
        (grid("int8", [0.1, 0.2], [0, 0], axis=0), "int8"),
        (grid("float8e4m3fn"), "int8"),
    ],
)
def test_other_values_are_no_exact_fit(params: QParams, rules: str) -> None:
    assert exact_fit(params, parse_rules(rules)) is None


def test_the_lower_clamp_of_what_is_never_negative_needs_no_clip() -> None:
    narrow = grid("int8", lo=-127)
    spec = parse_rules("int8 full-range")
    fit, guarded = exact_fit(narrow, spec, non_negative=True), exact_fit(narrow, spec)
    assert fit is not None
    assert fit.clip is None
    assert guarded is not None
    assert guarded.clip == pytest.approx((-12.7, 12.7))


def test_codes_below_zero_are_free_where_nothing_is_negative() -> None:
    fit = exact_fit(grid("uint8", zero=150), parse_rules("int8 symmetric"), non_negative=True)
    assert fit is not None
    x = np.abs(POINTS)
    np.testing.assert_array_equal(fit.params.fake(x), grid("uint8", zero=150).fake(x))


def test_a_constant_uses_only_some_codes() -> None:
    params = grid("uint8", zero=3, role=Role.WEIGHT)
    spec = parse_rules("int8 symmetric")
    small, large = np.float32([-0.3, 0.5, 12.7]), np.float32([-0.3, 12.8])
    fit = exact_fit(params, spec, values=params.fake(small))
    assert fit is not None
    np.testing.assert_array_equal(fit.params.fake(small), params.fake(small))
    assert exact_fit(params, spec, values=params.fake(large)) is None


def test_scales_that_are_multiples_become_one() -> None:
    params = grid("int8", [0.25, 0.5], [0, 0], axis=0, role=Role.WEIGHT)
    values = np.float32([[0.25, -1.25], [0.5, 31.5]])
    fit = exact_fit(params, parse_rules("int8 symmetric"), values=values)
    assert fit is not None
    assert fit.params.axis is None
    np.testing.assert_array_equal(fit.params.fake(values), values)


def test_blocks_that_agree_become_channels() -> None:
    params = grid("int8", [[0.1, 0.1], [0.2, 0.2]], np.zeros((2, 2)), axis=1, block=2)
    values = params.fake(np.arange(8, dtype=np.float32).reshape(2, 4))
    fit = exact_fit(params, parse_rules("int8 symmetric per-channel"), values=values)
    assert fit is not None
    assert (fit.params.axis, fit.params.block) == (0, 0)
    np.testing.assert_array_equal(fit.params.fake(values), values)


RULES = [
    "int8 symmetric",
    "int8 symmetric full-range",
    "uint8",
    "int8 symmetric -127..127",
    "int8/uint8 symmetric",
    "int4",
    "int16 symmetric",
    "int8 symmetric power-of-two",
    "uint8 power-of-two",
]


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(["int8", "uint8", "int4", "uint4", "int16"]),
    share=st.floats(0, 1),
    scale=st.floats(1e-3, 10),
    rules=st.sampled_from(RULES),
    positive=st.booleans(),
)
def test_a_fit_obeys_and_its_error_is_what_it_says(
    kind: str, share: float, scale: float, rules: str, positive: bool
) -> None:
    """Against a scan of the range, which the error of the jumps may exceed but not fall below."""
    held = qtype(kind)
    params = grid(kind, scale, held.lo + round(share * (held.hi - held.lo)))
    spec = parse_rules(rules)
    low, high = (float(end) for end in params.range)
    low = max(low, 0.0) if positive else low
    assume(high > low)
    x = np.linspace(low, high, 3001, dtype=np.float32)
    exact = exact_fit(params, spec, non_negative=positive)
    if exact is not None:
        assert not list(spec.violations(exact.params))
        given_ = clipped(x, exact.clip)
        np.testing.assert_array_equal(exact.params.fake(given_), params.fake(x))
    fit = covering_fit(params, spec, non_negative=positive)
    assert fit is not None
    assert not list(spec.violations(fit))
    error = largest_error(params, fit, non_negative=positive)
    scanned = np.abs(fit.fake(x) - params.fake(x)).max() / (high - low)
    assert scanned <= error * (1 + 1e-3) + 1e-6
    if not spec.power_of_two:
        # Both round by half a step; the new zero point is off by half a step at most.
        most = float(params.scale) / 2 + float(fit.scale)
        assert error * (high - low) <= most * (1 + 1e-3)


@settings(deadline=None, max_examples=100)
@given(
    kind=st.sampled_from(["int8", "uint8", "int4", "uint4"]),
    share=st.floats(0, 1),
    scale=st.one_of(st.floats(1e-3, 10), st.sampled_from([1.0, 3.0, 0.1, 9.384538444038338])),
    rules=st.sampled_from(RULES),
)
def test_the_largest_error_is_that_of_every_jump(
    kind: str, share: float, scale: float, rules: str
) -> None:
    held = qtype(kind)
    old = grid(kind, scale, held.lo + round(share * (held.hi - held.lo)))
    new = covering_fit(old, parse_rules(rules))
    assert new is not None
    low, high = (float(end) for end in old.range)
    ties = np.concatenate(
        [(np.arange(g.lo, g.hi) - g.zero_point + 0.5) * np.float64(g.scale) for g in (old, new)]
    ).astype(np.float32)
    near = [ties.view(np.int32) + away for away in range(-4, 5)]  # neighbouring floats
    points = np.clip(np.concatenate(near).view(np.float32), np.float32(low), np.float32(high))
    every = np.abs(new.fake(points).astype(np.float64) - old.fake(points)).max()
    assert largest_error(old, new) == every / (high - low)


def test_per_channel_becomes_per_tensor_over_all_channels() -> None:
    params = grid("int8", [0.01, 0.1], [0, 0], axis=0)
    fit = covering_fit(params, parse_rules("int8 symmetric"))
    assert fit is not None
    assert float(fit.scale) == pytest.approx(12.8 / 128)
    # Channel 0 reaches 1.28 and is rounded to steps of 0.1.
    assert largest_error(params, fit) == pytest.approx(0.05 / 2.55, rel=1e-5)


def test_weights_cover_their_values_not_their_range() -> None:
    params = grid("uint8", zero=3, role=Role.WEIGHT)
    values = params.fake(np.float32([-0.3, 20]))
    fit = covering_fit(params, parse_rules("int8 symmetric"), values=values)
    assert fit is not None
    assert float(fit.scale) == pytest.approx(20 / 127)
    assert largest_error(params, fit, values=values) <= 0.5 / 127


def test_a_channel_of_zeros_keeps_a_scale() -> None:
    params = grid("int8", [0.1, 0.2], [1, 1], axis=0, role=Role.WEIGHT)
    values = np.float32([[0, 0], [1, -3]])
    fit = covering_fit(params, parse_rules("int8 symmetric per-channel"), values=values)
    assert fit is not None
    assert np.all(fit.scale > 0)
    assert largest_error(params, fit, values=np.zeros_like(values)) == 0


def test_the_nearer_power_of_two() -> None:
    spec = parse_rules("int8 symmetric power-of-two")
    for scale, want in ((0.26, 0.5), (0.25, 0.25), (0.2505, 0.25), (0.2, 0.25)):
        fit = covering_fit(grid("int8", scale), spec)
        assert fit is not None
        assert float(fit.scale) == want


def test_no_type_no_fit() -> None:
    assert covering_fit(grid("int8"), parse_rules("uint8 symmetric")) is None
    assert covering_fit(grid("float8e4m3fn"), parse_rules("int8")) is None
    assert covering_fit(grid("int8", zero=3), parse_rules("float8e4m3fn")) is None


def test_a_clamp_is_lost_where_the_new_grid_reaches_more_than_twice_as_far() -> None:
    around = grid("int8", 25.5 / 127, lo=-127)
    assert lost_clamp(grid("uint8"), around) == (0.0, np.inf)
    assert lost_clamp(grid("uint8"), around, non_negative=True) is None
    low, high = lost_clamp(grid("uint8", zero=30), around) or (0, 0)
    assert np.allclose((low, high), (-3, 22.5))
    assert lost_clamp(grid("uint8", zero=100), grid("int8", 15.5 / 127)) is None
    assert lost_clamp(grid("int8"), grid("int8", 0.125)) is None


@pytest.mark.parametrize("zero", [0, 30, 100, 250])
@pytest.mark.parametrize("non_negative", [False, True])
def test_the_error_beyond_the_old_range_is_what_it_says(zero: int, non_negative: bool) -> None:
    old, new = grid("uint8", zero=zero), grid("int8", 0.25)
    low, high = (float(end) for end in old.range)
    x = POINTS[(low > POINTS) | (high < POINTS)]
    x = x[x >= 0] if non_negative else x
    for clamp in (None, lost_clamp(old, new, non_negative=non_negative)):
        off = np.abs(new.fake(clipped(x, clamp)) - old.fake(x)).max() / (high - low)
        said = clamp_error(old, new, non_negative=non_negative, clamp=clamp)
        assert np.isclose(said, off, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "zero"), [("int8", -1), ("int8", 3), ("uint8", 127)])
def test_a_zero_point_is_kept_where_one_scale_may_have_it(kind: str, zero: int) -> None:
    """The same values as codes of the type that may have a zero point."""
    rules = parse_rules("int8 symmetric per-channel asymmetric:uint8 -127..127")
    params = QParams("w", qtype(kind), np.asarray(0.1), np.asarray(zero), role=Role.WEIGHT)
    values = params.fake(np.linspace(-30, 30, 997, dtype=np.float32))
    fit = exact_fit(params, rules, values=values)
    assert fit is not None
    assert fit.params.qtype == qtype("uint8")
    assert np.array_equal(fit.params.fake(values), values)
    # Symmetric int8 comes first if it has all the values.
    few = params.fake(np.linspace(-9, 9, 97, dtype=np.float32))
    fit = exact_fit(params, rules, values=few)
    assert fit is not None
    assert (str(fit.params.qtype), fit.params.is_symmetric) == ("int8", True)
    zeros = np.full(2, params.qtype.lo + 20)
    channels = params.with_(scale=np.array([0.1, 0.2]), zero_point=zeros, axis=0)
    wide = channels.fake(np.linspace(-30, 30, 40, dtype=np.float32).reshape(2, 20))
    assert exact_fit(channels, rules, values=wide) is None
