"""Orders of axes by number: all of them, and back."""

from __future__ import annotations

import itertools

import pytest

from onnxq.ncnn.axis_orders import number_of, order_of


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_numbers_and_back(rank: int) -> None:
    orders = list(itertools.permutations(range(rank)))
    numbers = [number_of(order) for order in orders]
    assert sorted(numbers) == list(range(len(orders)))
    assert [order_of(number, rank) for number in numbers] == orders


def test_names_say_which_axis_becomes_the_innermost() -> None:
    assert number_of((0, 1)) == number_of((0, 1, 2)) == number_of((0, 1, 2, 3)) == 0
    assert number_of((1, 2, 0)) == 3  # c, h, w to h, w, c: c is the innermost
    assert number_of((1, 2, 3, 0)) == 9


@pytest.mark.parametrize(("number", "rank"), [(-1, 2), (2, 2), (6, 3), (24, 4), (0, 5), (0, 0)])
def test_there_is_no_such_order(number: int, rank: int) -> None:
    assert order_of(number, rank) is None
