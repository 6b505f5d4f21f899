"""Every spelling of Q/DQ becomes the canonical op, bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from onnxq import runtime
from onnxq.errors import QParamsError
from onnxq.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import from_proto
from onnxq.qparams import Role
from passes.read_qdq import ReadQdq
from tests.build import apply, bit_equal, ops, parse, reasons, run
from tests.strategies import qdq_graphs
from tests.zoo import QDQ, ZOO, inputs

X = np.linspace(-30, 30, 24, dtype=np.float32).reshape(2, 3, 4)


def test_pair_becomes_one_node() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,3,4] y) <float s = {0.1}, uint8 z = {7}> {
            q = QuantizeLinear(x, s, z)
            y = DequantizeLinear(q, s, z)
        }"""
    )
    read, trace = apply(model, ReadQdq())
    assert ops(read) == ["FakeQuantize"]
    assert len(trace.rewrites) == 1
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, params.lo, params.hi, int(params.zero_point)) == ("uint8", 0, 255, 7)
    assert bit_equal(run(model, X), run(read, X))


@pytest.mark.parametrize(("lo", "hi"), [(0, 127), (-127, 127), (-8, 7), (-7, 7)])
def test_clip_between_q_and_dq_is_the_range(lo: int, hi: int) -> None:
    kind = "uint8" if lo == 0 else "int8"
    model = parse(
        f"""g (float[2,3,4] x) => (float[2,3,4] y)
        <float s = {{0.1}}, {kind} z = {{0}}, {kind} lo = {{{lo}}}, {kind} hi = {{{hi}}}> {{
            q = QuantizeLinear(x, s, z)
            c = Clip(q, lo, hi)
            y = DequantizeLinear(c, s, z)
        }}"""
    )
    read, _ = apply(model, ReadQdq())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.lo, params.hi) == (lo, hi)
    assert bit_equal(run(model, X), run(read, X))


def test_one_element_scale_becomes_a_scalar_and_its_axis_is_ignored() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,3,4] y) <float[1] s = {0.1}, uint8[1] z = {7}> {
            q = QuantizeLinear<axis=0>(x, s, z)
            y = DequantizeLinear<axis=0>(q, s, z)
        }"""
    )
    read, _ = apply(model, ReadQdq())
    node = read.nodes(FAKE_QUANTIZE)[0]
    assert node.inputs[1].shape == ()
    assert "axis" not in node.attrs


def test_int32_bias_becomes_a_row() -> None:
    proto = ZOO["qdq_uint8_stored_int32_bias"]()
    read, _ = apply(from_proto(proto), ReadQdq())
    rows = read.qparams.of(Role.BIAS)
    assert rows
    assert all(r.qtype.name == "int32" for r in rows)
    kept = from_proto(read.to_proto())
    assert [r.to_json() for r in kept.qparams] == [r.to_json() for r in read.qparams]


def test_one_q_with_many_dq_is_one_quantizer() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,3,4] a, float[2,3,4] b)
        <float s = {0.1}, uint8 z = {7}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            e = DequantizeLinear(q, s, z)
            a = Relu(d)
            b = Neg(e)
        }"""
    )
    read, _ = apply(model, ReadQdq())
    assert len(read.nodes(FAKE_QUANTIZE)) == 1
    assert bit_equal(run(model, X), run(read, X))


def test_requantization_is_left_with_the_reason() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,3,4] y)
        <float s = {0.1}, float t = {0.2}, uint8 z = {7}> {
            q = QuantizeLinear(x, s, z)
            y = DequantizeLinear(q, t, z)
        }"""
    )
    read, trace = apply(model, ReadQdq())
    assert ops(read) == ["QuantizeLinear", "DequantizeLinear"]
    assert "requantization" in reasons(trace)


def test_codes_that_leave_the_graph_stay() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,3,4] y, uint8[2,3,4] q)
        <float s = {0.1}, uint8 z = {7}> {
            q = QuantizeLinear(x, s, z)
            y = DequantizeLinear(q, s, z)
        }"""
    )
    read, trace = apply(model, ReadQdq())
    assert sorted(ops(read)) == ["FakeQuantize", "QuantizeLinear"]
    assert "leave the graph" in reasons(trace)
    assert bit_equal(run(model, X), run(read, X))


def test_scale_computed_at_run_time_is_left_with_the_reason() -> None:
    model = parse(
        """g (float[2,3,4] x, float s) => (float[2,3,4] y) <uint8 z = {7}> {
            q = QuantizeLinear(x, s, z)
            y = DequantizeLinear(q, s, z)
        }"""
    )
    _, trace = apply(model, ReadQdq())
    assert "computed at run time" in reasons(trace)


def test_float8_codes_are_left_with_the_reason() -> None:
    h = onnx.helper
    zero = h.make_tensor("z", onnx.TensorProto.FLOAT8E4M3FN, [], [0.0])
    scale = h.make_tensor("s", onnx.TensorProto.FLOAT, [], [0.1])
    graph = h.make_graph(
        [
            h.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        "g",
        [h.make_tensor_value_info("x", 1, [3])],
        [h.make_tensor_value_info("y", 1, [3])],
        [scale, zero],
    )
    model = from_proto(h.make_model(graph, opset_imports=[h.make_opsetid("", 19)], ir_version=9))
    read, trace = apply(model, ReadQdq())
    assert ops(read) == ["QuantizeLinear", "DequantizeLinear"]
    assert "float8_e4m3fn" in reasons(trace)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_negative_scale_of_stored_codes_is_mirrored(kind: str) -> None:
    codes = "-8, 7, 0, 3, -1, 2" if kind == "int8" else "0, 255, 7, 3, 1, 2"
    model = parse(
        f"""g (float[2,3] x) => (float[2,3] y)
        <{kind}[2,3] c = {{{codes}}}, float[2] s = {{-0.5, 0.25}}, {kind}[2] z = {{1, 3}}> {{
            w = DequantizeLinear<axis=0>(c, s, z)
            y = Mul(x, w)
        }}"""
    )
    read, _ = apply(model, ReadQdq())
    assert (params_of(read.nodes(FAKE_QUANTIZE)[0]).scale > 0).all()
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
    assert bit_equal(run(model, x), run(read, x))


@pytest.mark.parametrize(("value", "word"), [("0.0", "0.0"), ("-0.5", "-0.5")])
def test_a_bad_scale_is_an_error_that_names_the_tensor(value: str, word: str) -> None:
    model = parse(
        f"""g (float[2,3,4] x) => (float[2,3,4] y) <float s = {{{value}}}, uint8 z = {{7}}> {{
            q = QuantizeLinear(x, s, z)
            y = DequantizeLinear(q, s, z)
        }}"""
    )
    with pytest.raises(QParamsError, match=f"'x'.*{word}"):
        apply(model, ReadQdq())


@pytest.mark.parametrize("name", sorted(QDQ))
@pytest.mark.parametrize("seed", [0, 1])
def test_canonical_zoo_is_bit_equal(name: str, seed: int) -> None:
    proto = ZOO[name]()
    read, _ = apply(from_proto(proto), ReadQdq())
    feeds = inputs(proto, seed)
    before = runtime.reference(proto).run(feeds)
    after = runtime.reference(read).run(feeds)
    assert bit_equal(before.values(), after.values())


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(qdq_graphs())
def test_canonical_random_graphs_are_bit_equal(proto: onnx.ModelProto) -> None:
    read, _ = apply(from_proto(proto), ReadQdq())
    feeds = inputs(proto)
    assert bit_equal(
        runtime.reference(proto).run(feeds).values(), runtime.reference(read).run(feeds).values()
    )
