"""The trusted model is opened once, and run once on each sample that is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import OptionError
from onnxq.graph import Model
from onnxq.proof.difference import Tolerance
from onnxq.proof.trusted import Running, Trusted
from onnxq.proof.verify import compare, verify
from onnxq.running.sessions import Session
from tests.models.build import parse, quantize

SAMPLE = 2 * 16 * 4
"""Bytes of one sample and its result."""


def negated() -> Model:
    return quantize(parse("g (float[1,16] x) => (float[1,16] y) { y = Neg(x) }"), "x")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    found: list[Session] = []
    run = Session.run

    def counted(self: Session, *arguments: Any) -> Any:
        found.append(self)
        return run(self, *arguments)

    monkeypatch.setattr(Session, "run", counted)
    return found


@pytest.mark.parametrize(("kept", "again"), [(0, 4), (1, 3), (3, 1), (4, 0), (9, 0)])
def test_results_are_the_same_each_time(kept: int, again: int, runs: list[Session]) -> None:
    trusted = Trusted(negated(), keep=kept * SAMPLE)
    first = list(trusted.results())
    assert len(runs) == len(first) == 4
    second = list(trusted.results())
    assert len(runs) == 4 + again
    assert {*runs} == {trusted.session}
    for (feed, made), (feed_again, made_again) in zip(first, second, strict=True):
        assert np.array_equal(feed["x"], feed_again["x"])
        assert np.array_equal(made["y"], made_again["y"])


def test_a_comparison_that_breaks_off_leaves_the_rest_for_the_next() -> None:
    data = [{"x": np.full((1, 16), value, np.float32)} for value in range(4)]
    trusted = Trusted(negated(), data, keep=1 << 20)
    next(trusted.results())
    assert [feed["x"][0, 0] for feed, _ in trusted.results()] == [0, 1, 2, 3]


def test_comparing_is_what_verify_does() -> None:
    source, other = negated(), parse("g (float[1,16] x) => (float[1,16] y) { y = Neg(x) }")
    trusted = Trusted(source, keep=1 << 20)
    for _ in range(2):
        assert compare(trusted, Running(other), Tolerance()) == verify(source, other)


def test_a_trusted_model_may_be_the_other_one() -> None:
    one, other = Trusted(negated()), Trusted(negated())
    assert compare(one, other, Tolerance()).passed
    assert compare(other, one, Tolerance()).passed


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(OptionError, match="seed -1"):
        Trusted(negated(), seed=-1)
