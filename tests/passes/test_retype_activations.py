"""Types change, values never do."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from passes.retype_activations import RetypeActivations
from tests.models.build import apply, bit_equal, parse, quantize, run, weight

X = np.linspace(-40, 40, 96, dtype=np.float32).reshape(2, 3, 4, 4)


def chain(op: str, middle: str = "") -> Model:
    return parse(
        f"""g (float[2,3,4,4] x) => (float[2,3,4,4] y) <float zero = {{0}}, float six = {{6}}> {{
            r = {op}
            {middle}
            y = Neg(r)
        }}"""
    )


@pytest.mark.parametrize("zero_point", [-128, -3, 0, 77])
@pytest.mark.parametrize(("lo", "hi"), [(-128, 127), (-127, 127), (-128, 90)])
def test_int8_to_uint8(zero_point: int, lo: int, hi: int) -> None:
    zero_point = max(zero_point, lo)
    model = quantize(chain("Identity(x)"), "r", zero_point=zero_point, lo=lo, hi=hi)
    made, _ = apply(model, RetypeActivations())
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert params.qtype.name == "uint8"
    assert (params.lo, params.hi, int(params.zero_point)) == (lo + 128, hi + 128, zero_point + 128)
    assert bit_equal(run(made, X), run(model, X))


@pytest.mark.parametrize("op", ["Relu(x)", "Clip(x, zero, six)", "Abs(x)", "Sigmoid(x)"])
def test_never_negative_counts_from_zero(op: str) -> None:
    model = quantize(chain(op), "r", scale=np.float32(0.11), zero_point=0)
    made, _ = apply(model, RetypeActivations())
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, int(params.zero_point), params.lo, params.hi) == ("uint8", 0, 0, 127)
    assert bit_equal(run(made, X), run(model, X))


@pytest.mark.parametrize(
    ("zero_point", "hi", "left"),
    [(135, 255, None), (128, 255, 127), (224, 255, 31), (3, 255, None), (0, 255, None)],
)
def test_whole_codes_are_kept(zero_point: int, hi: int, left: int | None) -> None:
    model = quantize(chain("Relu(x)"), "r", qtype="uint8", zero_point=zero_point, lo=0, hi=hi)
    made, _ = apply(model, RetypeActivations(whole=True))
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    want = (zero_point, 0, hi) if left is None else (0, 0, left)
    assert (int(params.zero_point), params.lo, params.hi) == want
    assert bit_equal(run(made, X), run(model, X))


def test_sign_is_followed_through_pools_sums_and_quantizers() -> None:
    model = parse(
        """g (float[2,3,4,4] x) => (float[2,3,2,2] y) {
            a = Relu(x)
            s = Add(a, a)
            y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(s)
        }"""
    )
    for name in ("a", "s", "y"):
        quantize(model, name)
    made, _ = apply(model, RetypeActivations())
    assert all(int(params_of(n).zero_point) == 0 for n in made.nodes(FAKE_QUANTIZE))
    assert bit_equal(run(made, X), run(model, X))


PADS = "p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>()"
KEPT = {
    "Expand": "i = Constant<value_ints = [4, 1, 1, 1, 1]>() r = Expand(a, i)",
    "Gather": "i = Constant<value_ints = [2, 0]>() r = Gather <axis = 1> (a, i)",
    "Pad": f"{PADS} r = Pad(a, p)",
    "ReduceMean": "r = ReduceMean <axes = [2, 3]> (a)",
    "Resize": """s = Constant<value_floats = [1., 1., 2., 2.]>()
        r = Resize <mode = "linear"> (a, , s)""",
    "Split": "r, other = Split <axis = 2> (a)",
    "Tile": "i = Constant<value_ints = [1, 1, 2, 3]>() r = Tile(a, i)",
}


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_sign_is_followed_through_operators_that_keep_it(body: str) -> None:
    text = f"g (float[2,3,4,4] x) => (float y) {{ a = Relu(x) {body} y = Neg(r) }}"
    model = quantize(parse(text, opset=17), "r", scale=np.float32(0.11), zero_point=0)
    made, _ = apply(model, RetypeActivations())
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, int(params.zero_point), params.lo, params.hi) == ("uint8", 0, 0, 127)
    assert bit_equal(run(made, X), run(model, X))


def test_a_border_below_zero_keeps_its_codes() -> None:
    body = f"{PADS} v = Constant<value_float = -5.>() a = Relu(x) r = Pad(a, p, v) y = Neg(r)"
    model = quantize(parse(f"g (float[2,3,4,4] x) => (float y) {{ {body} }}"), "r", zero_point=0)
    made, _ = apply(model, RetypeActivations())
    assert int(params_of(made.nodes(FAKE_QUANTIZE)[0]).zero_point) == 128
    assert bit_equal(run(made, X), run(model, X))


def test_uint8_to_int8() -> None:
    model = quantize(chain("Identity(x)"), "r", qtype="uint8", zero_point=128)
    made, _ = apply(model, RetypeActivations(to="int8"))
    assert params_of(made.nodes(FAKE_QUANTIZE)[0]).is_symmetric
    assert bit_equal(run(made, X), run(model, X))


def test_weights_and_wide_types_stay() -> None:
    model = parse(
        """g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1,2,3,4}> { y = MatMul(x, w) }"""
    )
    weight(model, "w")
    quantize(model, "x", qtype="int16")
    made, trace = apply(model, RetypeActivations())
    assert trace.rewrites == []
    assert "int16" in trace.skips[0].reason
    assert {params_of(n).qtype.name for n in made.nodes(FAKE_QUANTIZE)} == {"int8", "int16"}


@pytest.mark.parametrize("to", ["uint8", "int8"])
def test_float8_is_left_with_the_reason(to: str) -> None:
    model = parse("g (float[N] x) => (float[N] y) { r = Relu(x) y = Neg(r) }")
    quantize(model, "r", qtype="float8e5m2")
    made, trace = apply(model, RetypeActivations(to=to))
    assert params_of(made.nodes(FAKE_QUANTIZE)[0]).qtype.name == "float8e5m2"
    assert f"float8e5m2, which do not fit {to}" in trace.skips[0].reason


def joined(zero_point: int = 125) -> Model:
    """A Relu, that and another tensor joined on one grid, and the Relu joined with an Abs."""
    model = parse(
        """g (float[2,3,4,4] x) => (float[2,6,4,4] y, float[2,6,4,4] z) {
            r = Relu(x) n = Neg(x) a = Abs(x) c = Tanh(x)
            both = Concat <axis = 1> (r, n) y = Neg(both)
            more = Concat <axis = 1> (r, a) z = Add(more, c)
        }"""
    )
    for name in ("r", "n", "a", "c"):
        quantize(model, name, qtype="uint8", zero_point=zero_point)
    return model


@pytest.mark.parametrize("zero_point", [125, 128])
@pytest.mark.parametrize("whole", [False, True])
def test_inputs_of_one_operator_keep_their_grid_together(zero_point: int, whole: bool) -> None:
    model = joined(zero_point)
    made, _ = apply(model, RetypeActivations(whole=whole, together=True))
    found = {int(params_of(n).zero_point) for n in made.nodes(FAKE_QUANTIZE)}
    assert found == {zero_point}, "also the Abs, which is joined with the Relu"
    apart, _ = apply(model, RetypeActivations())
    assert {int(params_of(n).zero_point) for n in apart.nodes(FAKE_QUANTIZE)} == {0, zero_point}


def test_together_counts_from_zero_where_all_inputs_can() -> None:
    model = parse(
        """g (float[2,3,4,4] x) => (float[2,6,4,4] y) {
            r = Relu(x) a = Abs(x) both = Concat <axis = 1> (r, a) y = Neg(both)
        }"""
    )
    for name in ("r", "a"):
        quantize(model, name, qtype="uint8", zero_point=125)
    made, _ = apply(model, RetypeActivations(together=True))
    assert {int(params_of(n).zero_point) for n in made.nodes(FAKE_QUANTIZE)} == {0}
    assert bit_equal(run(made, X), run(model, X))
