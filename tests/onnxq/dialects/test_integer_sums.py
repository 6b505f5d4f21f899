from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.graph.constants import array
from tests.checks.integers import canonical, lowered, rows_by_tensor
from tests.models.build import bit_equal, ops, parse, reasons, run

X = np.random.default_rng(0).normal(0, 3, (2, 4)).astype(np.float32)


def product(scaling: str, extra: str = "", *, zeros: str = "z, wz") -> Model:
    return parse(
        f"""g (float[2,4] x) => (float[2,3] y)
        <float s = {{0.03}}, uint8 z = {{100}}, int8[4,3] w = {{1,2,3,4,5,6,7,8,9,-10,-11,-12}},
         int8 wz = {{0}}, uint8 other = {{99}}, int8[3] wz3 = {{0, 1, -1}}, float m = {{0.0021}},
         float[3] m3 = {{0.001, 0.002, 0.003}}, float sw = {{0.07}}, float[2,1] rows = {{1, 2}}
         {extra}> {{
            q = QuantizeLinear(x, s, z)
            [sums] i = MatMulInteger(q, w, {zeros})
            f = Cast <to = 1> (i)
            {scaling}
        }}"""
    )


def weight_scale(model: Model) -> np.ndarray:
    (found,) = [r for r in rows_by_tensor(canonical(model)).values() if r.role == "weight"]
    return found.scale


@pytest.mark.parametrize(
    "scaling", ["y = Mul(f, m)", "y = Mul(m3, f)", "k = Mul(s, sw) y = Mul(k, f)"]
)
def test_sums_become_a_float_product(scaling: str) -> None:
    model = product(scaling)
    made, trace = lowered(model)
    assert len(trace.rewrites) == 1
    assert "MatMulInteger" not in ops(made)
    (want,), (got,) = run(model, X), run(made, X)
    # One rounding of the weight's scale, one of each operand, and those of the sum.
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-7 * np.abs(want).max())
    (read,) = run(canonical(model), X)
    np.testing.assert_allclose(read, want, rtol=0, atol=4e-7 * np.abs(want).max())


def test_a_factor_written_as_a_product_tells_the_weight_scale_exactly() -> None:
    model = product("k = Mul(s, sw) y = Mul(k, f)")
    np.testing.assert_array_equal(weight_scale(model), np.float32(0.07))


def test_another_factor_is_divided_by_the_input_scale() -> None:
    scale = weight_scale(product("y = Mul(f, m3)"))
    want = np.array([0.001, 0.002, 0.003], np.float32) / np.float32(0.03)
    np.testing.assert_array_equal(scale, want)


def test_zero_points_per_column() -> None:
    model = product("y = Mul(f, m)", zeros="z, wz3")
    made, _ = lowered(model)
    np.testing.assert_allclose(run(made, X), run(model, X), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("scaling", "zeros", "why"),
    [
        ("y = Add(f, m)", "z, wz", "not scaled by one Mul"),
        ("y = Mul(f, m)", "other, wz", "differs from that of the quantizer"),
        ("y = Mul(f, rows)", "z, wz", "one value per output channel"),
        ("k = ReduceMax(x) y = Mul(f, k)", "z, wz", "'k' of its sums is computed"),
        ("o = Relu(f) y = Mul(f, m)", "z, wz", "not scaled by one Mul"),
    ],
)
def test_what_stays_says_why(scaling: str, zeros: str, why: str) -> None:
    model = product(scaling, zeros=zeros)
    made, trace = lowered(model)
    assert why in reasons(trace)
    assert trace.rewrites == []
    assert bit_equal(run(made, X), run(model, X))


@pytest.mark.parametrize(
    ("step", "factor", "why"),
    [
        ("0.03", "3e38", "beyond float32"),
        ("1e30", "1e-15", "below float32"),
        ("1e-38", "1e-45", "below float32"),
    ],
)
def test_a_weight_scale_that_float32_does_not_hold_is_declined(
    step: str, factor: str, why: str
) -> None:
    model = product("y = Mul(f, odd)", f", float odd = {{{factor}}}")
    (node,) = model.nodes("QuantizeLinear")
    node.inputs[1].values = np.array(step, np.float32)
    made, trace = lowered(model)
    assert why in reasons(trace)
    assert bit_equal(run(made, X), run(model, X))


def test_inputs_that_stand_for_numbers_beyond_float32_are_refused() -> None:
    model = product("y = Mul(f, m)")
    (node,) = model.nodes("QuantizeLinear")
    node.inputs[1].values = np.array(1e37, np.float32)
    with pytest.raises(QParamsError, match=r"sums.*'q' represent values beyond float32"):
        lowered(model)


def test_codes_of_unknown_origin_are_declined() -> None:
    model = parse(
        """g (uint8[2,4] q) => (float[2,3] y)
        <uint8[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}, float m = {0.5}> {
            i = MatMulInteger(q, w)
            f = Cast <to = 1> (i)
            y = Mul(f, m)
        }"""
    )
    assert "do not come from a quantizer" in reasons(lowered(model)[1])


CONVOLUTION = """g (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float s = {0.5}, uint8 z = {9}, int8[2,2,1,1] w = {1, -2, 3, 4}, float[1,2,1,1] m = {0.25, 0.5},
 float[2] last = {1, 2}> {
    q = QuantizeLinear(x, s, z)
    i = ConvInteger(q, w, z)
    f = Cast <to = 1> (i)
    y = Mul(f, %s)
}"""


def test_convolutions_have_their_channels_second() -> None:
    x = np.random.default_rng(0).normal(0, 3, (1, 2, 4, 4)).astype(np.float32)
    model = parse(CONVOLUTION % "m")
    made, _ = lowered(model)
    assert bit_equal(run(made, x), run(model, x))
    (weight,) = [n for n in made.nodes("DequantizeLinear") if array(n.inputs[0]) is not None]
    assert weight.attrs["axis"] == 0
    np.testing.assert_array_equal(array(weight.inputs[1]), [0.5, 1.0])


def test_a_factor_along_another_dimension_is_declined() -> None:
    model = parse((CONVOLUTION % "last").replace("4,4]", "2,2]"))
    assert "is not along channels" in reasons(lowered(model)[1])
