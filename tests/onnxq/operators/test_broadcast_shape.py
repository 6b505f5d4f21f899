"""Broadcasting parameters and the axis they run along."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from onnxq.operators.broadcast_shape import per_channel, rank_of, spread, varying_axes


@pytest.mark.parametrize(
    ("shape", "rank", "axes"),
    [
        ((4, 1, 1, 1), 4, [0]),
        ((4, 1, 1, 1), None, [-4]),
        ((4, 1, 1), 4, [1]),
        ((1, 4, 1, 1), None, [-3]),
        ((4,), 2, [1]),
        ((), 3, []),
        ((1, 1), 2, []),
        ((2, 3), 2, [0, 1]),
    ],
)
def test_axis_of_a_broadcast_shape(
    shape: tuple[int, ...], rank: int | None, axes: list[int]
) -> None:
    assert varying_axes(shape, rank) == axes


def test_scalars_and_vectors_are_told_apart() -> None:
    scale, zero = np.float32([[[0.1]], [[0.2]]]), np.zeros(())
    found = per_channel((scale, zero), 4)
    assert found is not None
    (scales, zeros), axis = found
    assert axis == 1
    np.testing.assert_array_equal(scales, np.float32([0.1, 0.2]))
    np.testing.assert_array_equal(zeros, [0, 0])
    found = per_channel((np.float32([[0.5]]), zero), 2)
    assert found is not None
    assert found[1] is None
    assert [v.shape for v in found[0]] == [(), ()]


@pytest.mark.parametrize(
    ("first", "second", "rank"),
    [((2, 3), (), 2), ((2, 1), (1, 3), 2), ((2, 1), (3, 1), 2), ((1, 1, 1), (), 2)],
)
def test_what_has_no_single_axis(
    first: tuple[int, ...], second: tuple[int, ...], rank: int
) -> None:
    assert per_channel((np.ones(first), np.ones(second)), rank) is None


@pytest.mark.parametrize(("axis", "rank"), [(0, 4), (1, 4), (3, 4), (-2, 3), (-2, None), (-1, 1)])
def test_spread_is_read_back(axis: int, rank: int | None) -> None:
    values = np.float32([1, 2, 3])
    shaped = spread(values, axis, rank)
    assert shaped is not None
    found = per_channel((shaped,), rank)
    assert found is not None
    np.testing.assert_array_equal(found[0][0], values)
    assert found[1] == (axis + rank if axis < 0 and rank is not None else axis)


def test_spread_needs_the_rank_for_an_axis_from_the_front() -> None:
    assert spread(np.ones(3), 1, None) is None
    scalar = spread(np.float32([2.0]), None, None)
    assert scalar is not None
    assert scalar.shape == ()


def test_rank_comes_from_the_shape_or_the_value() -> None:
    assert rank_of(gs.Variable("x", shape=["N", 3])) == 2
    assert rank_of(gs.Variable("x")) is None
    made = gs.Variable("c")
    gs.Node("Constant", "", {"value": gs.Constant("v", np.ones((2, 3, 4)))}, [], [made])
    assert rank_of(made) == 3
