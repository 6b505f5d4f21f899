from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import QParamsError
from onnxq.graph import Model, from_proto
from onnxq.operators.integer_operators import QOPERATORS, find
from onnxq.running import sessions
from tests.checks.integers import contrib, lowered
from tests.models.build import bit_equal, ops, parse, reasons, run
from tests.models.zoo import ZOO, inputs

CONV = """g (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float s = {0.5}, uint8 z = {100}, int8[2,2,1,1] w = {1, -2, 3, 4}, float[2] ws = {0.25, 0.125},
 int8[2] wz = {0, 0}, int8 wz0 = {0}, float[1] s1 = {0.5}, uint8[1] z1 = {100},
 float t = {0.25}, uint8 u = {90}, int32[2] b = {7, -9}, float nan = {-1}, float[3] ws3 = {1, 1, 1},
 int8[3] wz3 = {0, 0, 0}, int8[2] uz = {1, 1}> {
    q = QuantizeLinear(x, s, z)
    [conv] c = QLinearConv(q, s, z, w, %s, t, u, b)
    y = DequantizeLinear(c, t, u)
}"""
X = np.random.default_rng(0).normal(0, 9, (1, 2, 4, 4)).astype(np.float32)


@pytest.mark.parametrize("name", [n for n in sorted(ZOO) if n.startswith("qop_")])
def test_integer_operators_become_float_ones_that_compute_the_same(name: str) -> None:
    """Scales are powers of two, so that not even a tie falls to the other side."""
    proto = ZOO[name]()
    model = from_proto(proto)
    made, trace = lowered(model)
    assert trace.rewrites
    assert not set(QOPERATORS) & set(ops(made))
    for seed in range(3):
        feeds = inputs(proto, seed)
        want = sessions.reference(model).run(feeds)
        got = sessions.reference(made).run(feeds)
        assert bit_equal(got.values(), want.values())


def test_every_operator_of_the_table_is_lowered_in_the_zoo() -> None:
    found = {n.op for name in ZOO for n in from_proto(ZOO[name]()).nodes() if n.op in QOPERATORS}
    assert found | {"QLinearReduceMean"} == set(QOPERATORS)


def test_names_follow_from_the_operator() -> None:
    made, _ = lowered(parse(CONV % "ws, wz"))
    (conv,) = made.nodes("Conv")
    assert conv.name == "conv"
    assert [t.name for t in conv.inputs] == ["q.dequantized", "w.dequantized", "b.dequantized"]
    assert conv.outputs[0].name == "c.real"
    assert conv.outputs[0].outputs[0].outputs[0].name == "c"


def test_the_bias_has_the_scale_of_the_products() -> None:
    made, _ = lowered(parse(CONV % "ws, wz"))
    bias = made.nodes("Conv")[0].inputs[2].inputs[0]
    assert bias.attrs["axis"] == 0
    np.testing.assert_array_equal(bias.inputs[1].values, [0.125, 0.0625])
    assert bias.inputs[2].values.dtype == np.int32


@pytest.mark.parametrize("parameters", ["ws, wz", "ws, wz0", "s, wz0", "s1, wz0"])
def test_scales_and_zero_points_of_any_allowed_shape(parameters: str) -> None:
    model = parse(CONV % parameters)
    made, _ = lowered(model)
    assert bit_equal(run(made, X), run(model, X))


def test_one_element_vectors_become_scalars() -> None:
    """Some tools write scales of shape [1], which onnxruntime refuses in QLinearAdd."""
    model = contrib(
        """g (float[2] x) => (float[2] y)
        <float[1] s = {0.5}, uint8[1] z = {3}, float t = {0.5}, uint8 u = {3}> {
            q = QuantizeLinear(x, t, u)
            c = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, z)
            y = DequantizeLinear(c, t, u)
        }"""
    )
    made, _ = lowered(model)
    (got,) = run(made, np.array([1, -0.5], np.float32))
    np.testing.assert_array_equal(got, [2, -1])


def test_what_is_broken_is_refused_by_node_and_tensor() -> None:
    for parameters, why in (
        ("nan, wz0", "conv.*'w'.*positive"),
        ("ws3, wz3", "conv.*'w'.*3 scales for 2 channels"),
        ("s, z", "'w' has int8 codes"),
    ):
        with pytest.raises(QParamsError, match=why):
            lowered(parse(CONV % parameters))


def test_a_bias_that_is_not_int32_is_refused() -> None:
    model = parse((CONV % "ws, wz").replace("int32[2]", "int8[2]"))
    with pytest.raises(QParamsError, match=r"conv.*bias 'b' is int8, not int32"):
        lowered(model)


def test_two_types_in_an_operator_of_one_type_are_refused() -> None:
    model = contrib(
        """g (float[2] x) => (int8[2] y)
        <float s = {0.5}, uint8 z = {3}, int8 w = {3}> {
            q = QuantizeLinear(x, s, z)
            y = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, w)
        }"""
    )
    with pytest.raises(QParamsError, match="int8 and uint8 codes, but QLinearAdd needs one type"):
        lowered(model)


def test_a_result_declared_in_another_type_than_its_zero_point_is_refused() -> None:
    model = contrib(
        """g (float[2] x) => (int8[2] y)
        <float s = {0.5}, uint8 z = {3}> {
            q = QuantizeLinear(x, s, z)
            y = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, z)
        }"""
    )
    with pytest.raises(QParamsError, match="'y' has int8 codes, but its zero point is uint8"):
        lowered(model)


def test_computed_scales_are_declined() -> None:
    model = parse((CONV % "a, wz0").replace("{\n    q =", "{\n    a = ReduceMax(x)\n    q ="))
    _, trace = lowered(model)
    assert trace.rewrites == []
    assert "'a' of 'w' is computed at run time" in reasons(trace)


@pytest.mark.parametrize(
    ("left", "right", "result", "why"),
    [
        (0.5, 1e-45, 1e-45, "underflows float32"),  # 0 in the kernel, so that all codes are 9
        (1e-20, 1e-20, 1e-38, "underflows float32"),
        (1e30, 1e30, 1e30, "overflows float32"),  # infinite in the kernel, where 0 * inf is NaN
        (0.5, 0.25, 1e-45, "overflows float32"),
        (0.5, 0.25, 0.125, ""),
        (1e-18, 1e-18, 3e38, ""),  # no code but the zero point, in the kernel and in its twin
    ],
)
def test_scales_whose_product_float32_does_not_hold_are_declined(
    left: float, right: float, result: float, why: str
) -> None:
    model = parse(
        f"""g (uint8[2,4] q) => (float[2,3] y)
        <float s = {{{left}}}, uint8 z = {{100}}, float r = {{{right}}}, int8 rz = {{0}},
         float t = {{{result}}}, uint8 u = {{9}},
         int8[4,3] w = {{1,2,3,4,5,6,7,8,9,-10,-11,-12}}> {{
            c = QLinearMatMul(q, s, z, w, r, rz, t, u)
            y = DequantizeLinear(c, t, u)
        }}"""
    )
    made, trace = lowered(model)
    assert (why in reasons(trace)) if why else (len(trace.rewrites) == 1)
    codes = np.array([[103, 98, 100, 101], [100, 100, 100, 100]], np.uint8)
    assert bit_equal(run(made, codes), run(model, codes))


def softmax(axis: int, own: int, opset: int) -> Model:
    return contrib(
        f"""g (float[2,3,4] x) => (float[2,3,4] y)
        <float s = {{0.0625}}, uint8 z = {{128}}, float t = {{0.00390625}}, uint8 u = {{0}}> {{
            q = QuantizeLinear(x, s, z)
            c = com.microsoft.QLinearSoftmax <axis = {axis}, opset = {own}> (q, s, z, t, u)
            y = DequantizeLinear(c, t, u)
        }}""",
        opset,
    )


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize(("own", "opset"), [(13, 17), (11, 17), (11, 11), (13, 12)])
def test_softmax_means_what_its_own_opset_means(axis: int, own: int, opset: int) -> None:
    model = softmax(axis, own, opset)
    made, _ = lowered(model)
    x = np.random.default_rng(abs(axis)).normal(0, 2, (2, 3, 4)).astype(np.float32)
    assert bit_equal(run(made, x), run(model, x))


@pytest.mark.parametrize("opset", [13, 18])
def test_reduce_mean(opset: int) -> None:
    """onnxruntime has no kernel for it, so the oracle is arithmetic on exact numbers."""
    model = contrib(
        """g (float[2,4] x) => (float[2] y) <float s = {1}, uint8 z = {128}, float t = {0.25}> {
            q = QuantizeLinear(x, s, z)
            c = com.microsoft.QLinearReduceMean <axes = [1], keepdims = 0> (q, s, z, t, z)
            y = DequantizeLinear(c, t, z)
        }""",
        opset,
    )
    made, _ = lowered(model)
    (got,) = run(made, np.array([[1, 2, 3, 4], [-8, 0, 0, 1]], np.float32))
    np.testing.assert_array_equal(got, [2.5, -1.75])


def test_channels_last_of_unknown_rank_are_declined() -> None:
    model = contrib(
        """g (float[1,3,3,2] x) => (float y) <float s = {1}, uint8 z = {128}> {
            q = QuantizeLinear(x, s, z)
            c = com.microsoft.QLinearGlobalAveragePool <channels_last = 1> (q, s, z, s, z)
            y = DequantizeLinear(c, s, z)
        }"""
    )
    _, trace = lowered(model)
    assert "its rank is unknown" in reasons(trace)


def test_the_operator_is_known_by_domain() -> None:
    model = contrib(
        """g (uint8[2] q) => (uint8[2] c) <float s = {1}, uint8 z = {128}> {
            c = mine.QLinearAdd(q, s, z, q, s, z, s, z)
        }"""
    )
    assert find("mine", "QLinearAdd") is None
    assert lowered(model)[1].rewrites == []
