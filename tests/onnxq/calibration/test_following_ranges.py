"""Ranges that follow from others contain what really occurs, and no function is left out."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.calibration.following_ranges import follow, within_limits
from onnxq.calibration.ranges import KnownRange, RangeTable
from onnxq.graph import Model
from tests.models.build import parse, run

X = KnownRange.of(-3.0, 2.0, "the int8 quantizer of the source")


def followed(model: Model, **known: KnownRange) -> RangeTable:
    return follow(model, dict(known))


def of(expression: str, opset: int = 20) -> Model:
    return parse(f"g (float[1,2,4,4] x) => (float[1,2,N,M] y) {{ {expression} }}", opset)


def ends(found: KnownRange) -> tuple[float, float]:
    return float(found.low), float(found.high)


FUNCTIONS = [
    "y = Relu(x)",
    "y = Sigmoid(x)",
    "y = HardSigmoid(x)",
    "y = HardSigmoid<alpha = 0.5, beta = 0.25>(x)",
    "y = Tanh(x)",
    "y = Erf(x)",
    "y = Exp(x)",
    "y = Softplus(x)",
    "y = Softsign(x)",
    "y = Elu<alpha = 0.5>(x)",
    "y = LeakyRelu(x)",
    "y = LeakyRelu<alpha = 0.3>(x)",
    "y = Abs(x)",
    "y = Neg(x)",
    "y = HardSwish(x)",
    "y = Gelu(x)",
    "s = Sigmoid(x) y = Mul(x, s)",
    "s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(s, x)",
    "a = Constant<value_float = -1.0>() b = Constant<value_float = 1.5>() y = Clip(x, a, b)",
    "a = Constant<value_float = 1.41421356>() b = Constant<value_float = 1.0>() "
    "c = Constant<value_float = 0.5>() d = Div(x, a) e = Erf(d) f = Add(e, b) m = Mul(x, f) "
    "y = Mul(m, c)",
]


@pytest.mark.parametrize("expression", FUNCTIONS)
@pytest.mark.parametrize(("low", "high"), [(-3.0, 2.0), (-0.5, 4.0), (-8.0, -1.0), (0.5, 1.0)])
def test_functions_reach_both_ends_exactly(expression: str, low: float, high: float) -> None:
    """Compared with a million values through onnxruntime: the ends are met, not only covered."""
    model = of(expression)
    values = np.linspace(low, high, 1_000_000, dtype=np.float32).reshape(1, 2, -1, 1000)
    wide = parse(f"g (float[1,2,N,M] x) => (float[1,2,N,M] y) {{ {expression} }}", 20)
    (seen,) = run(wide, values)
    found = ends(followed(model, x=KnownRange.of(low, high, "data"))["y"])
    assert found == pytest.approx((seen.min(), seen.max()), abs=5e-6, rel=2e-6)


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("y = Add(x, z)", (-4.0, 7.0)),
        ("y = Sub(x, z)", (-8.0, 3.0)),
        ("y = Mul(x, z)", (-15.0, 10.0)),
        ("y = Mul(x, x)", (0.0, 9.0)),
        ("y = Concat<axis = 1>(x, z)", (-3.0, 5.0)),
        ("y = Max(x, z)", (-3.0, 5.0)),
        ("y = MaxPool<kernel_shape = [2, 2]>(x)", (-3.0, 2.0)),
        ("y = AveragePool<kernel_shape = [2, 2]>(x)", (-3.0, 2.0)),
        ("y = GlobalAveragePool(x)", (-3.0, 2.0)),
        ("y = Transpose<perm = [0, 1, 3, 2]>(x)", (-3.0, 2.0)),
        ("c = Constant<value_floats = [-2.0, 1.0, 4.0, 3.0]>() y = Add(x, c)", (-5.0, 6.0)),
        ("y = Softmax(x)", (0.0, 1.0)),
        ("a = Relu(x) b = Add(a, z) y = Relu(b)", (0.0, 7.0)),
    ],
)
def test_arithmetic_and_moves(expression: str, want: tuple[float, float]) -> None:
    model = parse(
        f"g (float[1,2,4,4] x, float[1,2,4,4] z) => (float[1,N,K,M] y) {{ {expression} }}", 20
    )
    found = followed(model, x=X, z=KnownRange.of(-1.0, 5.0, "data"))["y"]
    assert ends(found) == want
    assert found.source


@pytest.mark.parametrize(
    ("expression", "input_range"),
    [
        ("a = Exp(z) y = Relu(a)", (0.0, 6.0)),
        ("a = Exp(z) y = Flatten(a)", (0.0, 6.0)),
        ("a = Exp(z) y = MaxPool<kernel_shape = [2, 2]>(a)", (0.0, 6.0)),
        ("a = Exp(z) y = Concat<axis = 1>(a, z)", (0.0, 6.0)),
    ],
)
def test_what_only_such_operators_read_has_the_range_of_their_result(
    expression: str, input_range: tuple[float, float]
) -> None:
    model = parse(f"g (float[1,2,4,4] z) => (float[N,K,M,L] y) {{ {expression} }}")
    found = followed(model, y=KnownRange.of(0.0, 6.0, "the quantizer of y"))
    assert ends(found["a"]) == input_range
    assert found["a"].source == "follows from 'y': the quantizer of y"
    assert "z" not in found


@pytest.mark.parametrize(
    "expression",
    [
        "a = Exp(z) b = Neg(a) y = Relu(a)",  # Neg sees what Relu cuts
        "a = Exp(z) y = AveragePool<kernel_shape = [2, 2]>(a)",  # averages hide the extremes
        "a = Exp(z) y = Sigmoid(a)",
    ],
)
def test_where_another_consumer_needs_more_nothing_follows(expression: str) -> None:
    outs = "(float[1,2,N,M] y, float[1,2,4,4] b)" if " b = " in expression else "(float[1,2,N,M] y)"
    model = parse(f"g (float[1,2,4,4] z) => {outs} {{ {expression} }}")
    assert "a" not in followed(model, y=KnownRange.of(0.0, 6.0, "data"))


@pytest.mark.parametrize(
    "expression",
    [
        "y = Conv(x, w)",  # bounds of sums of products are far too wide
        "y = Div(x, x)",  # the divisor may be zero
        "e = Exp(x) f = Exp(e) g1 = Exp(f) h = Exp(g1) y = Exp(h)",  # beyond all numbers
    ],
)
def test_no_bound_is_better_than_a_useless_one(expression: str) -> None:
    model = parse(
        f"g (float[1,2,4,4] x, float[2,2,1,1] w) => (float[1,2,4,4] y) {{ {expression} }}"
    )
    assert "y" not in followed(model, x=KnownRange.of(-3.0, 20.0, "data"))


def test_long_chains_are_followed() -> None:
    chain = " ".join(f"t{i + 1} = Relu(t{i})" for i in range(3000))
    model = parse(f"g (float[4] t0) => (float[4] t3000) {{ {chain} }}")
    found = followed(model, t0=X)
    assert ends(found["t3000"]) == (0.0, 2.0)
    assert len(found["t3000"].source) < 200


@pytest.mark.parametrize(
    ("attributes", "known"),
    [('mode = "linear"', True), ('mode = "nearest"', True), ('mode = "cubic"', False)],
)
def test_only_a_cubic_resize_overshoots(attributes: str, known: bool) -> None:
    model = parse(f"""g (float[1,2,4,4] x) => (float[1,2,8,8] y)
        <float[4] s = {{1.0, 1.0, 2.0, 2.0}}> {{ y = Resize<{attributes}>(x, , s) }}""")
    assert ("y" in followed(model, x=X)) is known


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("y = Relu(x)", (0.0, 4.0)),
        ("a = Relu(x) y = MaxPool<kernel_shape = [2, 2]>(a)", (0.0, 4.0)),
        ("y = Sigmoid(x)", (0.0, 1.0)),
        ("y = Tanh(x)", (-1.0, 1.0)),
        ("y = Neg(x)", (-4.0, 4.0)),
        (
            "a = Constant<value_float = 0.0>() b = Constant<value_float = 6.0>() y = Clip(x, a, b)",
            (0.0, 4.0),
        ),
        (
            "a = Constant<value_float = 1.0>() b = Constant<value_float = 2.0>() y = Clip(x, a, b)",
            (0.0, 2.0),
        ),
    ],
)
def test_what_cannot_occur_is_left_out(expression: str, want: tuple[float, float]) -> None:
    """Zero stays within: every grid contains it."""
    found = within_limits(of(expression), {"y": KnownRange.of(-4.0, 4.0, "int8"), "x": X})
    assert ends(found["y"]) == want
    assert found["x"] is X
    assert found["y"].source.startswith("int8")
