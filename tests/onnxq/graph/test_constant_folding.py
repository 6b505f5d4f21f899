"""Constants behind operators have the values onnxruntime computes, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxq.graph import constants
from onnxq.graph.constant_folding import ARITHMETIC_LIMIT, MOVING, OPERATORS, evaluate
from onnxq.graph.constants import array, computed
from tests.models.build import parse, run, tensor

WEIGHT = "float[2,3] w = {1, -2, 3.5, 4, 0.1, 6}"
BODIES = {
    "Identity": "v = Identity(w)",
    "Cast": "i = Cast<to=6>(w)  v = Cast<to=1>(i)",
    "CastLike": "h = Cast<to=10>(w)  v = CastLike(h, c)",
    "Transpose": "v = Transpose<perm=[1,0]>(w)",
    "Reshape": "s = Constant<value_ints=[0,-1,1]>()  v = Reshape(w, s)",
    "Flatten": "v = Flatten<axis=-1>(w)",
    "Squeeze": "s = Constant<value_ints=[0]>()  u = Unsqueeze(w, s)  v = Squeeze(u, s)",
    "Unsqueeze": "s = Constant<value_ints=[0,-1]>()  v = Unsqueeze(w, s)",
    "ConstantOfShape": "s = Constant<value_ints=[3]>()"
    "  v = ConstantOfShape<value = float[1] {0.3}>(s)",
    "Expand": "s = Constant<value_ints=[4,1,3]>()  v = Expand(w, s)",
    "Concat": "v = Concat<axis=1>(w, w)",
    "Gather": "s = Constant<value_ints=[1,-1]>()  v = Gather<axis=1>(w, s)",
    "Shape": "s = Shape<start=1>(w)  v = Cast<to=1>(s)",
    "Add": "v = Add(w, c)",
    "Sub": "v = Sub(c, w)",
    "Mul": "v = Mul(w, c)",
    "Div": "v = Div(c, w)",
    "Neg": "v = Neg(w)",
    "Abs": "v = Abs(w)",
    "Sqrt": "a = Abs(w)  v = Sqrt(a)",
    "Reciprocal": "v = Reciprocal(w)",
}


def test_every_operator_is_tested() -> None:
    assert set(BODIES) == set(OPERATORS)


@pytest.mark.parametrize("op", BODIES)
def test_as_onnxruntime(op: str) -> None:
    model = parse(
        f"g () => (float[a] y) <{WEIGHT}, float[3] c = {{0.3, 7, -0.1}}>"
        f"{{ {BODIES[op]}  y = Identity(v) }}"
    )
    found = computed(tensor(model, "v"))
    assert found is not None
    moved = op in MOVING
    assert (array(tensor(model, "v")) is not None) == moved
    (want,) = run(model)
    assert (found.dtype, found.shape) == (want.dtype, want.shape)
    assert found.tobytes() == want.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        found[...] = 1


FLOATS = hnp.arrays(np.float32, 8, elements=st.floats(width=32))


@settings(max_examples=60, deadline=None)
@given(FLOATS, FLOATS, st.sampled_from(["Add", "Sub", "Mul", "Div"]))
def test_arithmetic_rounds_as_onnxruntime_does(a: np.ndarray, b: np.ndarray, op: str) -> None:
    """Subnormals, overflow, division by zero and NaN included."""
    model = parse(
        "g () => (float[8] y) <float[8] a = {0,0,0,0,0,0,0,0}, float[8] b = {0,0,0,0,0,0,0,0}>"
        f"{{ v = {op}(a, b)  y = Identity(v) }}"
    )
    tensor(model, "a").values, tensor(model, "b").values = a, b
    found = computed(tensor(model, "v"))
    assert found is not None
    (want,) = run(model)
    np.testing.assert_array_equal(found, want)
    assert (np.signbit(found) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize(
    ("declared", "body"),
    [
        ("int8 a = {100}, int8 b = {100}", "v = Add(a, b)"),  # wraps around
        ("int32 a = {7}, int32 b = {2}", "v = Div(a, b)"),  # truncates, if it is not by zero
        ("float a = {7}, double b = {2}", "v = Mul(a, b)"),  # not valid
        ("float[2] a = {7, 8}, float[3] b = {1, 2, 3}", "v = Mul(a, b)"),
        ("float[2] a = {7, 8}, int64[1] b = {3}", "v = Reshape(a, b)"),
        ("float[2] a = {7, 8}, int64[1] b = {5}", "v = Gather(a, b)"),
        ("float a = {7}, float b = {2}", "v = Pow(a, b)"),  # libraries round it differently
        ("float a = {7}, float b = {2}", "v = com.x.Mul (a, b)"),
    ],
)
def test_what_is_not_known_here(declared: str, body: str) -> None:
    model = parse(f"g () => (float y) <{declared}> {{ {body}  y = Identity(v) }}")
    assert computed(tensor(model, "v")) is None


def test_integers_are_computed_where_they_fit() -> None:
    model = parse(
        "g () => (int8 y) <int8 a = {100}, int8 b = {-28}> { v = Sub(b, a)  y = Identity(v) }"
    )
    assert computed(tensor(model, "v")).tolist() == -128  # type: ignore[union-attr]


def test_large_weights_are_moved_but_not_computed() -> None:
    size = ARITHMETIC_LIMIT + 1
    model = parse(
        "g () => (float[n] y) <float[2] w = {0, 0}, float c = {2}>"
        "{ t = Identity(w)  m = Mul(t, c)  y = Identity(m) }"
    )
    tensor(model, "w").values = np.ones(size, np.float32)
    assert array(tensor(model, "t")).size == size  # type: ignore[union-attr]
    assert computed(tensor(model, "m")) is None


def test_a_shared_subgraph_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubling 15 times by t + t would take 2^15 steps if each use were followed."""
    steps = "".join(f"t{i + 1} = Add(t{i}, t{i}) " for i in range(15))
    model = parse(f"g () => (float y) <float t0 = {{1}}> {{ {steps} y = Neg(t15) }}")
    evaluated: list[str] = []

    def counting(node: gs.Node, values: list[Any]) -> Any:
        evaluated.append(node.outputs[0].name)
        return evaluate(node, values)

    monkeypatch.setattr(constants, "evaluate", counting)
    assert computed(tensor(model, "t15")) == 2.0**15
    assert sorted(evaluated) == sorted(f"t{i + 1}" for i in range(15))


def test_a_long_computation_is_left_to_fold_constants() -> None:
    steps = "".join(f"t{i + 1} = Add(t{i}, c) " for i in range(500))
    model = parse(
        f"g () => (float y) <float t0 = {{1}}, float c = {{1}}> {{ {steps} y = Neg(t500) }}"
    )
    assert computed(tensor(model, "t500")) is None
