"""Every spelling of Q/DQ becomes the canonical op, bit for bit."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from hypothesis import HealthCheck, given, settings

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import QParamsError
from onnxq.graph import Model, from_proto
from onnxq.quant.qparams import Role
from onnxq.quant.qtypes import QTYPES, qtype
from onnxq.running import sessions
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, add_metadata
from passes.collect_qparams import CollectQParams
from passes.read_qdq import ReadQdq
from passes.to_qdq import ToQdq
from tests.models.build import apply, bit_equal, ops, parse, reasons, run
from tests.models.stored_codes import stored
from tests.models.strategies import qdq_graphs
from tests.models.zoo import QDQ, ZOO, inputs
from tests.models.zoo_build import Build

FLOAT8 = [t.name for t in QTYPES.values() if t.floating]
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


LEAVING = """g (float[2,3,4] x) => (float[2,3,4] y, uint8[2,3,4] q)
    <float s = {0.1}, uint8 z = {7}> {
        q = QuantizeLinear(x, s, z)
        y = DequantizeLinear(q, s, z)
    }"""
LEAVING_ALONE = """g (float[2,3,4] x) => (uint8[2,3,4] q, float[2,3,4] r)
    <float s = {0.1}, uint8 z = {7}> {
        q = QuantizeLinear(x, s, z)
        r = Relu(x)
    }"""
ENTERING = """g (uint8[2,3,4] q) => (float[2,3,4] y, float[2,3,4] d)
    <float s = {0.1}, uint8 z = {7}> {
        d = DequantizeLinear(q, s, z)
        y = Relu(d)
    }"""


@pytest.mark.parametrize(("text", "stays"), [
    (LEAVING, "QuantizeLinear"),
    (LEAVING_ALONE, "QuantizeLinear"),
    (ENTERING, "DequantizeLinear"),
])  # fmt: skip
def test_codes_of_the_caller_stay_beside_a_quantizer(text: str, stays: str) -> None:
    model = parse(text)
    read, trace = apply(model, ReadQdq())
    assert ops(read).count("FakeQuantize") == 1
    assert ops(read).count(stays) == 1
    assert not trace.skips
    x = X if "float[2,3,4] x" in text else np.arange(232, 256, dtype=np.uint8).reshape(2, 3, 4)
    want = run(model, x)
    assert bit_equal(want, run(read, x))
    again, second = apply(from_proto(read.to_proto()), ReadQdq())
    assert not second.rewrites
    assert not second.skips
    assert ops(again) == ops(read)
    written, _ = apply(read, ToQdq())
    back, _ = apply(from_proto(written.to_proto()), ReadQdq())
    assert bit_equal(want, run(written, x))
    assert bit_equal(want, run(back, x))
    assert sorted(ops(back)) == sorted(ops(read))
    table = [apply(m, CollectQParams())[0].qparams.to_json() for m in (read, back)]
    assert table[0] == table[1]


def test_codes_that_leave_a_body_and_enter_the_graph() -> None:
    model = parse(
        """g (bool c, float[2,3,4] x) => (float[2,3,4] y) <float s = {0.1}, uint8 z = {7}> {
            q = If (c) <then_branch = t () => (uint8[2,3,4] a) { a = QuantizeLinear(x, s, z) },
                        else_branch = e () => (uint8[2,3,4] b) {
                            n = Neg(x)
                            b = QuantizeLinear(n, s, z)
                        }>
            d = DequantizeLinear(q, s, z)
            y = Relu(d)
        }"""
    )
    read, trace = apply(model, ReadQdq())
    assert len(read.nodes(FAKE_QUANTIZE)) == 3
    assert not trace.skips
    assert not apply(read, ReadQdq())[1].rewrites
    for flag in (np.array(True), np.array(False)):
        assert bit_equal(run(model, flag, X), run(read, flag, X))


def test_codes_that_something_else_reads_stay_with_the_reason() -> None:
    model = parse(
        """g (float[2,3,4] x) => (uint8[2,3,4] m) <float s = {0.1}, uint8 z = {7}> {
            q = QuantizeLinear(x, s, z)
            m = Max(q, q)
        }"""
    )
    read, trace = apply(model, ReadQdq())
    assert ops(read) == ["QuantizeLinear", "Max"]
    assert "(Max producing 'm')" in reasons(trace)


def test_readers_join_a_quantizer_that_makes_a_graph_output() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,3,4] a, float[2,3,4] e, float[2,3,4] b)
        <float s = {0.1}, uint8 z = {7}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            e = DequantizeLinear(q, s, z)
            f = DequantizeLinear(q, s, z)
            a = Relu(d)
            b = Neg(f)
        }"""
    )
    read, _ = apply(model, ReadQdq())
    assert len(read.nodes(FAKE_QUANTIZE)) == 1
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


def float8_pair(kind: str, **attrs: int) -> onnx.ModelProto:
    """x → Q → DQ in float8."""
    b = Build(19)
    step, zero = b.init(np.float32(0.1)), b.codes(0, qtype(kind).onnx)
    q = b.op("QuantizeLinear", b.input("x", [2, 3, 4]), step, zero, **attrs)
    return b.model(b.op("DequantizeLinear", q, step, zero))


@pytest.mark.parametrize("kind", FLOAT8)
def test_float8_pair(kind: str) -> None:
    proto = float8_pair(kind)
    read, _ = apply(from_proto(proto), ReadQdq())
    assert params_of(read.nodes(FAKE_QUANTIZE)[0]).qtype.name == kind
    x = X * np.float32(10.0) ** np.arange(-9, 6, 15 / 24, dtype=np.float32).reshape(X.shape)
    assert bit_equal(run(proto, x), run(read, x))
    written, _ = apply(read, ToQdq())
    assert written.opset == 19
    assert bit_equal(run(proto, x), run(written, x))


def test_float8_that_does_not_saturate_is_left_with_the_reason() -> None:
    _, trace = apply(from_proto(float8_pair("float8e4m3fn", saturate=0)), ReadQdq())
    assert "saturate=0" in reasons(trace)


def test_an_int8_bias_is_a_row() -> None:
    proto = ZOO["qdq_int8_bias"]()
    read, _ = apply(from_proto(proto), ReadQdq())
    (row,) = read.qparams.of(Role.BIAS)
    assert row.qtype.name == "int8"
    assert len(read.nodes(FAKE_QUANTIZE)) == 3
    written, _ = apply(read, ToQdq())
    again, _ = apply(from_proto(written.to_proto()), ReadQdq())
    assert [r.to_json() for r in again.qparams] == [r.to_json() for r in read.qparams]


def test_an_int8_constant_that_is_not_only_a_bias_is_a_quantizer() -> None:
    model = parse(
        """g (float[1,1,2,2] x) => (float[1,1,2,2] y, float[1] z)
        <float[1,1,1,1] w = {2}, int8[1] c = {3}, float s = {0.5}> {
            b = DequantizeLinear(c, s)
            y = Conv(x, w, b)
            z = Relu(b)
        }"""
    )
    read, _ = apply(model, ReadQdq())
    assert not read.qparams.of(Role.BIAS)
    assert len(read.nodes(FAKE_QUANTIZE)) == 1


def test_cast_to_another_type_between_q_and_dq_is_left_with_the_reason() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,3,4] y) <float s = {0.1}, uint8 z = {0}, int8 i = {0}> {
            q = QuantizeLinear(x, s, z)
            c = Cast<to=3>(q)
            y = DequantizeLinear(c, s, i)
        }"""
    )
    read, trace = apply(model, ReadQdq())
    assert ops(read) == ["QuantizeLinear", "Cast", "DequantizeLinear"]
    assert "its uint8 codes are cast to int8" in reasons(trace)


@pytest.mark.parametrize(
    ("lo", "hi", "why"),
    [(3, 9, "'x': zero point 0 is outside 3..9"), (9, 3, "'x': range 9..3 does not fit uint8")],
)
def test_clip_without_the_zero_point_is_refused(lo: int, hi: int, why: str) -> None:
    model = parse(
        f"""g (float[2,3,4] x) => (float[2,3,4] y)
        <float s = {{0.1}}, uint8 z = {{0}}, uint8 lo = {{{lo}}}, uint8 hi = {{{hi}}}> {{
            q = QuantizeLinear(x, s, z)
            c = Clip(q, lo, hi)
            y = DequantizeLinear(c, s, z)
        }}"""
    )
    with pytest.raises(QParamsError, match=re.escape(why)):
        apply(model, ReadQdq())


@pytest.mark.parametrize("bound", ["uint8[3] lo = {0,0,0}", "float lo = {0.5}", "uint8[0] lo = {}"])
def test_clip_to_what_is_not_one_integer_is_refused(bound: str) -> None:
    model = parse(
        f"""g (float[2,3,4] x) => (float[2,3,4] y) <float s = {{0.1}}, uint8 z = {{0}}, {bound}> {{
            q = QuantizeLinear(x, s, z)
            c = Clip(q, lo)
            y = DequantizeLinear(c, s, z)
        }}"""
    )
    with pytest.raises(QParamsError, match=r"the bound 'lo' of its Clip is not one integer"):
        apply(model, ReadQdq())


def test_codes_and_zero_point_of_two_types_are_refused() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,3,4] y) <float s = {0.1}, int8 z = {0}> {
            q = QuantizeLinear(x, s)
            y = DequantizeLinear(q, s, z)
        }"""
    )
    with pytest.raises(QParamsError, match="'x' has uint8 codes, but their zero point is int8"):
        apply(model, ReadQdq())


# -- ranges in metadata -------------------------------------------------------------------------


def with_range(model: Model, lo: str, hi: str) -> Model:
    for node in model.nodes("DequantizeLinear"):
        add_metadata(node, {QUANT_MIN: lo, QUANT_MAX: hi})
    return from_proto(model.to_proto())


def test_stated_range_of_stored_codes_is_taken_where_it_holds() -> None:
    codes = np.arange(-3, 3, dtype=np.int8).reshape(2, 3)
    read, trace = apply(with_range(stored(codes, np.float32(1), None), "-7", "7"), ReadQdq())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, params.lo, params.hi) == ("int4", -7, 7)
    assert not trace.notes


@pytest.mark.parametrize("ends", [("-2", "7"), ("-999", "7"), ("7", "-7")])
def test_stated_range_that_the_codes_break_is_ignored_with_a_note(ends: tuple[str, str]) -> None:
    codes = np.arange(-3, 3, dtype=np.int8).reshape(2, 3)
    read, trace = apply(with_range(stored(codes, np.float32(1), None), *ends), ReadQdq())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.lo, params.hi) == (-128, 127)
    assert any("but its codes differ" in note for note in trace.notes)


def test_stated_range_that_is_no_number_is_ignored() -> None:
    codes = np.arange(-3, 3, dtype=np.int8).reshape(2, 3)
    read, _ = apply(with_range(stored(codes, np.float32(1), None), "a", "7"), ReadQdq())
    assert params_of(read.nodes(FAKE_QUANTIZE)[0]).lo == -128


def test_stated_range_of_an_activation_without_clamp_is_ignored_with_a_note() -> None:
    model = with_range(from_proto(ZOO["qdq_int16_activations"]()), "-7", "7")
    read, trace = apply(model, ReadQdq())
    assert trace.notes
    feeds = inputs(ZOO["qdq_int16_activations"]())
    want = sessions.reference(ZOO["qdq_int16_activations"]()).run(feeds)
    assert bit_equal(sessions.reference(read).run(feeds).values(), want.values())


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
    before = sessions.reference(proto).run(feeds)
    after = sessions.reference(read).run(feeds)
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
        sessions.reference(proto).run(feeds).values(), sessions.reference(read).run(feeds).values()
    )


def test_a_constant_that_is_quantized_twice_is_two_weights() -> None:
    """What an exporter writes for a weight that two layers share, and a tool then quantizes."""
    source = parse(
        """g (float[2,3] x) => (float[2,3] y)
        <int8[3] q = {5, -7, 100}, float s = {0.03}, float t = {0.011}, uint8 z = {90}> {
            a = DequantizeLinear(q, s)
            n = Mul(x, a)
            same = Identity(a)
            codes = QuantizeLinear(same, t, z)
            b = DequantizeLinear(codes, t, z)
            y = Add(n, b)
        }"""
    )
    read, trace = apply(source, ReadQdq())
    assert trace.skips == []
    found = read.nodes(FAKE_QUANTIZE)
    assert len(found) == 2
    assert all(isinstance(node.inputs[0], gs.Constant) for node in found)
    assert len({id(node.inputs[0]) for node in found}) == 2
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    for model in (read, apply(read, ToQdq())[0]):
        assert bit_equal(run(model, x), run(source, x))


def of_vendor(domain: str, prefix: str, zero: str) -> Model:
    return from_proto(
        onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : 17, "{domain}" : 1]>
            g (float[2,3] x) => (float[2,3] y) <float s = {{0.25}}, {zero}> {{
                q = {domain}.{prefix}QuantizeLinear(x, s, z)
                y = {domain}.{prefix}DequantizeLinear(q, s, z)
            }}"""
        )
    )


VENDORS = [("com.amd.quark", "Extended"), ("com.vai.quantize", "Vitis"), ("com.microsoft", "")]


@pytest.mark.parametrize(("domain", "prefix"), VENDORS)
def test_the_same_operators_under_another_name(domain: str, prefix: str) -> None:
    read, trace = apply(of_vendor(domain, prefix, "int8 z = {3}"), ReadQdq())
    assert trace.skips == []
    assert ops(read) == ["FakeQuantize"]
    x = np.array([[0.1, 0.125, 0.375], [-50, 50, -0.625]], np.float32)
    want = (np.clip(np.rint(x / np.float32(0.25)) + 3, -128, 127) - 3) * np.float32(0.25)
    assert bit_equal(run(read, x), [want])


def test_codes_that_are_floats_of_another_type_are_told() -> None:
    model = of_vendor("com.amd.quark", "Extended", "bfloat16 z = {0}")
    left, trace = apply(model, ReadQdq())
    assert ops(left) == ["ExtendedQuantizeLinear", "ExtendedDequantizeLinear"]
    assert "its codes are bfloat16, which is not a quantization type" in reasons(trace)
