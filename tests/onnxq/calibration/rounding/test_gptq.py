"""Rounding by GPTQ against float64 oracles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.calibration.rounding import gptq
from onnxq.calibration.rounding.gptq import Grid, gptq_codes

Values = np.ndarray


def grid_of(weight: Values, bits: int = 4) -> Grid:
    """One scale per output, all codes from -hi to hi."""
    hi = 2 ** (bits - 1) - 1
    scale = np.abs(weight).max(axis=1, keepdims=True) / hi
    whole = np.broadcast_to(np.where(scale > 0, scale, 1.0), weight.shape)
    return Grid(whole, np.zeros(weight.shape), -hi, hi)


def correlated(rng: np.random.Generator, groups: int, rows: int, inputs: int) -> Values:
    """Inputs with a common part, as those of real layers have."""
    mix = rng.normal(size=(groups, inputs, inputs)) + 1.0
    return rng.normal(size=(groups, rows, inputs)) @ mix


def cost(x: Values, weight: Values, rounded: Values) -> Values:
    """The squared error at each output."""
    return np.square(x @ (rounded - weight)).sum(axis=1)


def products(x: Values) -> Values:
    return x.transpose(0, 2, 1) @ x


def one_by_one(weight: Values, grid: Grid, h: Values) -> Values:
    """The definition for one group: after each element, the best values of those left.

    They minimise the cost with the rounded ones fixed, which a linear system of H alone gives.
    """
    h = h + np.eye(len(h)) * gptq.DAMPING * np.diag(h).mean()
    order = np.argsort(-np.diag(h), kind="stable")
    now, codes = weight.copy(), np.zeros_like(weight)
    for step, j in enumerate(order):
        own = Grid(grid.scale[0, j], grid.zero[0, j], grid.lo, grid.hi)
        codes[j] = own.codes(now[j])
        left = order[step + 1 :]
        error = now[j] - own.values(codes[j])
        # d/dw_left of the cost is 0: H_ll d_left = -H_lj d_j, with d the change from here on
        if len(left):
            now[left] += np.linalg.solve(h[np.ix_(left, left)], h[left, j])[:, None] * error
    return codes


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (5, 3), (40, 7)])
def test_it_is_the_definition(inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(inputs)
    x = correlated(rng, 1, 4 * inputs, inputs)
    weight = rng.normal(size=(1, inputs, outputs))
    grid = grid_of(weight)
    made = gptq_codes(weight, grid, products(x))[0]
    wanted = one_by_one(weight[0], grid, products(x)[0])
    nearest = grid.codes(weight)[0]
    for column in range(outputs):
        own = made[:, column]
        assert np.array_equal(own, wanted[:, column]) or np.array_equal(own, nearest[:, column])
    assert inputs == 1 or np.array_equal(made, wanted)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    x, weight = correlated(rng, 2, 200, 50), rng.normal(size=(2, 50, 6))
    made = [gptq_codes(weight, grid_of(weight), products(x))]
    for size in (1, 7, 49, 50):
        monkeypatch.setattr(gptq, "BLOCK", size)
        made.append(gptq_codes(weight, grid_of(weight), products(x)))
    assert all(np.array_equal(made[0], other) for other in made)


@settings(max_examples=60, deadline=None)
@given(
    groups=st.integers(1, 4),
    inputs=st.integers(1, 24),
    outputs=st.integers(1, 6),
    bits=st.integers(2, 6),
    rows=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_output_is_worse_than_with_nearest_values(
    groups: int, inputs: int, outputs: int, bits: int, rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = correlated(rng, groups, rows, inputs)
    weight = rng.normal(size=(groups, inputs, outputs))
    grid = grid_of(weight, bits)
    codes = gptq_codes(weight, grid, products(x))
    assert codes.shape == weight.shape
    assert grid.lo <= codes.min() <= codes.max() <= grid.hi
    near = cost(x, weight, grid.values(grid.codes(weight)))
    # the costs are compared through H: sums of squares in another order
    assert (cost(x, weight, grid.values(codes)) <= near * (1 + 1e-9) + 1e-9).all()


@settings(max_examples=30, deadline=None)
@given(groups=st.integers(1, 3), inputs=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_inputs_without_correlation_give_the_nearest_values(
    groups: int, inputs: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(groups, inputs, 3))
    grid = grid_of(weight)
    energy = rng.uniform(0.5, 2.0, size=(groups, inputs))
    for h in (np.tile(np.eye(inputs), (groups, 1, 1)), np.eye(inputs) * energy[:, None]):
        assert np.array_equal(gptq_codes(weight, grid, h), grid.codes(weight))


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    rng = np.random.default_rng(3)
    x, weight = correlated(rng, 2, 100, 8), rng.normal(size=(2, 8, 4))
    x[0], x[1, :, 3] = 0.0, 0.0
    codes = gptq_codes(weight, grid_of(weight), products(x))
    nearest = grid_of(weight).codes(weight)
    assert np.array_equal(codes[0], nearest[0])
    assert np.array_equal(codes[1, 3], nearest[1, 3])


def test_it_is_near_the_best_of_all_codes() -> None:
    """Three inputs of 3 bits: all 343 roundings can be tried."""
    rng = np.random.default_rng(4)
    near, found, best = 0.0, 0.0, 0.0
    for _ in range(20):
        x, weight = correlated(rng, 1, 50, 3), rng.normal(size=(1, 3, 1))
        grid = grid_of(weight, 3)
        near += cost(x, weight, grid.values(grid.codes(weight)))[0, 0]
        found += cost(x, weight, grid.values(gptq_codes(weight, grid, products(x))))[0, 0]
        tried = [np.reshape(c, (1, 3, 1)) for c in itertools.product(range(-3, 4), repeat=3)]
        best += min(cost(x, weight, grid.values(c))[0, 0] for c in tried)
    assert best <= found < 0.9 * near


def test_it_wins_several_decibels_on_correlated_inputs() -> None:
    rng = np.random.default_rng(5)
    x, weight = correlated(rng, 1, 2000, 128), rng.normal(size=(1, 128, 64))
    fresh = x[:, 1000:]
    grid = grid_of(weight)
    made = grid.values(gptq_codes(weight, grid, products(x[:, :1000])))
    gain = (
        cost(fresh, weight, grid.values(grid.codes(weight))).sum() / cost(fresh, weight, made).sum()
    )
    assert 10 * np.log10(gain) > 4
