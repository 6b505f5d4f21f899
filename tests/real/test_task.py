"""Figures: what counts as kept."""

from __future__ import annotations

from tests.real.task import Figure


def test_answers() -> None:
    figure = Figure("words read", lambda _: [], lost=1)
    assert figure.judge([1, 1, 1], [1, 1, 0]) == ("3 of 3", "2 of 3", True)
    assert not figure.judge([1, 1, 1], [1, 0, 0])[2]
    assert figure.judge([1, 0, 0], [1, 1, 1])[2]


def test_values() -> None:
    figure = Figure("rating", lambda _: [], within=0.05)
    assert figure.judge([3.0, 2.0], [3.04, 2.0])[2]
    before, after, kept = figure.judge([3.0, 2.0], [3.1, 1.9])  # the mean alone would hide it
    assert (before, after, kept) == ("2.500", "2.500 (largest change 0.100)", False)
