"""A grid is recovered to the last bit or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.quant.grid_recovery import recovered


def folded(
    shape: tuple[int, ...], axis: int | None, bits: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """A weight on a symmetric grid, as training tools make it, and its scales."""
    rng = np.random.default_rng(seed)
    hi = 2 ** (bits - 1) - 1
    weight = rng.standard_normal(shape).astype(np.float32)
    others = tuple(i for i in range(len(shape)) if i != axis)
    scale = (np.abs(weight).max(axis=others, keepdims=axis is not None) / np.float32(hi)).astype(
        np.float32
    )
    return np.clip(np.rint(weight / scale), -hi, hi).astype(np.float32) * scale, scale


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from([(8, 4, 3, 3), (24, 6), (6, 24), (12, 1, 3, 3)]),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([4, 8]),
    st.integers(0, 2**16),
)
def test_values_stay_the_same_to_the_last_bit(
    shape: tuple[int, ...], axis: int | None, bits: int, seed: int
) -> None:
    weight, scale = folded(shape, axis, bits, seed)
    found = recovered("w", weight, 0 if axis is None else axis)
    if shape == (12, 1, 3, 3) and axis == 1:
        axis = None  # one channel is the whole tensor
    assert found is not None
    assert np.array_equal(found.fake(weight), weight)
    # The grid may be coarser than the one that was lost, never finer: n scales are one of these.
    ratio = found.scale.reshape(-1).astype(np.float64) / scale.reshape(-1).astype(np.float64)
    assert np.allclose(ratio, np.rint(ratio), rtol=1e-6)
    assert (np.rint(ratio) >= 1).all()
    assert (found.axis, found.qtype.bits <= bits) == (axis, True)
    assert found.hi is not None
    assert found.lo == -found.hi


@pytest.mark.parametrize("seed", range(5))
def test_random_weights_prove_nothing(seed: int) -> None:
    weight = np.random.default_rng(seed).standard_normal((6, 4, 3, 3)).astype(np.float32)
    assert recovered("w", weight, 0) is None


@pytest.mark.parametrize("seed", range(5))
def test_weights_changed_after_rounding_prove_nothing(seed: int) -> None:
    weight, _ = folded((6, 4, 3, 3), 0, 8, seed)
    gain = np.random.default_rng(seed).uniform(0.5, 2, (6, 1, 1, 1)).astype(np.float32)
    assert recovered("w", weight * gain, 0) is None


def test_few_values_prove_nothing() -> None:
    assert recovered("w", np.array([[0.1, -0.1], [0.2, 0.2]], np.float32), 0) is None


def test_sixteen_bits_prove_nothing() -> None:
    weight, _ = folded((6, 400), 0, 16, 0)
    assert recovered("w", weight, 0) is None


def test_a_channel_of_zeros_does_not_hinder_the_others() -> None:
    weight, _ = folded((6, 4, 3, 3), 0, 8, 3)
    weight[2] = 0
    found = recovered("w", weight, 0)
    assert found is not None
    assert np.array_equal(found.fake(weight), weight)


def test_the_lowest_code_of_the_type_is_kept_where_it_is_used() -> None:
    weight = (np.arange(-128, 128, dtype=np.float32) * np.float32(0.0371)).reshape(2, 128)
    found = recovered("w", weight, 0)
    assert found is not None
    assert (str(found.qtype), found.lo, found.hi, found.axis) == ("int8", -128, 127, None)
    assert found.scale == np.float32(0.0371)
    assert np.array_equal(found.fake(weight), weight)
