"""Tensors in bodies: If shows only what ran, Loop stacks, and the model computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.graph import Model
from onnxq.observing.inner_taps import Shown, expose
from onnxq.running import sessions
from tests.models.build import parse

IF = """g (bool c, float[2] x) => (float[2] y) {
  y = If (c) <
    then_branch = t () => (float[2] a) { inner = Neg(x)  a = Abs(inner) },
    else_branch = e () => (float[2] b) { other = Exp(x)  b = Relu(other) }>
}"""
LOOP = """g (float[1,2] x, int64 n, bool go) => (float[1,2] y)
<float[1,2] one = {1, 1}> {
  y = Loop (n, go, x) <
    body = b (int64 i, bool c, float[1,2] state) => (bool d, float[1,2] next)
      { d = Identity(c)  next = Add(state, one) }>
}"""
IF_IN_LOOP = """g (float[1,2] x, int64 n, bool go, bool c) => (float[1,2] y) {
  y = Loop (n, go, x) <
    body = b (int64 i, bool k, float[1,2] state) => (bool d, float[1,2] next)
      { d = Identity(k)
        next = If (c) <
          then_branch = t () => (float[1,2] a) { deep = Neg(state)  a = Abs(deep) },
          else_branch = e () => (float[1,2] b2) { b2 = Relu(state) }> }>
}"""
LOOP_IN_IF = """g (float[1,2] x, int64 n, bool go, bool c) => (float[1,2] y)
<float[1,2] one = {1, 1}> {
  y = If (c) <
    then_branch = t () => (float[1,2] a)
      { a = Loop (n, go, x) <
          body = b (int64 i, bool k, float[1,2] state) => (bool d, float[1,2] next)
            { d = Identity(k)  next = Add(state, one) }> },
    else_branch = e () => (float[1,2] b2) { b2 = Relu(x) }>
}"""


def shown(body: str, name: str, **feed: np.ndarray) -> tuple[np.ndarray, Shown]:
    model: Model = parse(body)
    plain = sessions.reference(model.clone()).run(feed)
    seen = expose(model, [name])[name]
    model.refresh()
    values = sessions.session(model, "shipped", taps=[seen.name]).run(feed)
    np.testing.assert_array_equal(values["y"], plain["y"])
    return values[seen.name], seen


X = np.array([1.0, -2.0], np.float32)


def test_an_if_shows_the_branch_that_ran() -> None:
    for name, when, expected in (("inner", True, -X), ("other", False, np.exp(X))):
        value, seen = shown(IF, name, c=np.array(when), x=X)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        assert seen.stacked == 0
        value, _ = shown(IF, name, c=np.array(not when), x=X)
        assert value.size == 0


def test_a_loop_stacks_its_iterations() -> None:
    feed = {"x": X[None], "n": np.array(3), "go": np.array(True)}
    value, seen = shown(LOOP, "next", **feed)
    assert value.shape == (3, 1, 2)
    np.testing.assert_array_equal(seen.values(value), X + np.array([[1], [2], [3]]))
    value, seen = shown(LOOP, "state", **feed)
    np.testing.assert_array_equal(seen.values(value), X + np.array([[0], [1], [2]]))


def test_a_loop_that_does_not_run_gives_nothing() -> None:
    value, _ = shown(LOOP, "next", x=X[None], n=np.array(0), go=np.array(True))
    assert value.size == 0


def test_a_loop_within_an_if() -> None:
    feed = {"x": X[None], "n": np.array(2), "go": np.array(True)}
    value, seen = shown(LOOP_IN_IF, "next", **feed, c=np.array(True))
    assert seen.stacked == 1
    assert seen.values(value).shape == (2, 2)
    value, _ = shown(LOOP_IN_IF, "next", **feed, c=np.array(False))
    assert value.size == 0


def test_an_if_within_a_loop_cannot_be_shown() -> None:
    model = parse(IF_IN_LOOP)
    assert expose(model, ["deep"]) == {}
    assert [o.name for o in model.graph.outputs] == ["y"]


@pytest.mark.parametrize(
    ("stacked", "shape", "made"),
    [(0, (2, 3), (2, 3)), (1, (5, 2, 3), (10, 3)), (2, (4, 5, 2, 3), (40, 3)), (1, (5, 3), (5, 3))],
)
def test_iterations_become_a_larger_batch(
    stacked: int, shape: tuple[int, ...], made: tuple[int, ...]
) -> None:
    assert Shown("t", stacked).values(np.zeros(shape)).shape == made
