"""Canonical to Q/DQ: bit-equal in the reference session, in the form runtimes load."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from onnxq.errors import PassError
from onnxq.graph import from_proto
from onnxq.graph.constants import array
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from onnxq.running import sessions
from passes.collect_qparams import CollectQParams
from passes.quantize_bias import QuantizeBias
from passes.read_qdq import ReadQdq
from passes.to_qdq import ToQdq
from tests.models.build import apply, bit_equal, ops, parse, quantize, run, tensor, weight
from tests.models.strategies import qdq_graphs
from tests.models.zoo import QDQ, ZOO, inputs

X = np.random.default_rng(0).normal(0, 4, (2, 4, 6, 6)).astype(np.float32)
CONV = """g (float[2,4,6,6] x) => (float[2,4,4,4] y) {
    y = Conv<kernel_shape=[3,3]>(x, w, b)
}"""


def conv() -> object:
    """x -> Conv, no quantizers."""
    random = np.random.default_rng(1)
    graph = onnx.parser.parse_graph(CONV)
    graph.initializer.append(
        onnx.numpy_helper.from_array(random.normal(size=(4, 4, 3, 3)).astype(np.float32), "w")
    )
    graph.initializer.append(
        onnx.numpy_helper.from_array(random.normal(size=4).astype(np.float32), "b")
    )
    h = onnx.helper
    return from_proto(h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=7))


TYPES = [
    ("int8", -128, 127, 13),
    ("uint8", 0, 255, 13),
    ("int16", -32768, 32767, 21),
    ("uint16", 0, 65535, 21),
    ("int4", -8, 7, 21),
    ("uint4", 0, 15, 21),
    ("int2", -2, 1, 25),
    ("float8e4m3fn", -448, 448, 19),
    ("float8e4m3fnuz", -240, 240, 19),
    ("float8e5m2", -57344, 57344, 19),
    ("float8e5m2fnuz", -57344, 57344, 19),
]


@pytest.mark.parametrize(("kind", "lo", "hi", "opset"), TYPES)
@pytest.mark.parametrize("form", ["stored", "float"])
def test_weight_types(kind: str, lo: int, hi: int, opset: int, form: str) -> None:
    zero = 0 if lo < 0 else (hi + 1) // 2
    model = weight(conv(), "w", qtype=kind, scale=np.float32(4.0 / (hi - lo)), zero_point=zero)
    want = run(model, X)
    made, _ = apply(model, ToQdq(weights=form))
    assert made.opset == opset
    assert bit_equal(run(made, X), want)
    first = made.nodes("DequantizeLinear")[0].inputs[0]
    if form == "stored":
        assert array(first).dtype == qtype(kind).dtype
    else:
        assert first.inputs[0].op == "QuantizeLinear"
    onnx.checker.check_model(made.to_proto(), full_check=True)


@pytest.mark.parametrize(("kind", "lo", "hi", "opset"), TYPES)
def test_activation_types(kind: str, lo: int, hi: int, opset: int) -> None:
    model = quantize(conv(), "x", qtype=kind, scale=np.float32(0.37), zero_point=0)
    want = run(model, X)
    made, _ = apply(model, ToQdq())
    assert made.opset == opset
    assert "Clip" not in ops(made)
    assert bit_equal(run(made, X), want)


@pytest.mark.parametrize(
    ("kind", "lo", "hi"),
    [
        ("int8", -127, 127),
        ("uint8", 0, 127),
        ("int8", -8, 7),
        ("int4", -7, 7),
        ("int16", -999, 999),
    ],
)
def test_narrow_activation_range_is_clipped(kind: str, lo: int, hi: int) -> None:
    model = quantize(conv(), "x", qtype=kind, scale=np.float32(0.02), zero_point=0, lo=lo, hi=hi)
    want = run(model, X)
    made, _ = apply(model, ToQdq(pack="never"))
    assert ops(made).count("Clip") == 1
    assert bit_equal(run(made, X), want)


NARROW = [
    ("int8", -127, 127, "always"),
    ("uint8", 1, 255, "always"),
    ("int4", -7, 7, "always"),
    ("int4", -8, 7, "never"),
    ("int2", -2, 1, "never"),
    ("int16", -999, 999, "always"),
]


@pytest.mark.parametrize(("kind", "lo", "hi", "pack"), NARROW)
@pytest.mark.parametrize("form", ["stored", "float"])
@pytest.mark.parametrize("step", [0.001, 0.9])
def test_narrow_range_is_read_back(
    kind: str, lo: int, hi: int, pack: str, form: str, step: float
) -> None:
    """A range that no node shows, with weights inside it and beyond it."""
    scale = np.float32(step / (hi - lo))
    model = weight(conv(), "w", qtype=kind, scale=scale, zero_point=max(lo, 0), lo=lo, hi=hi)
    quantize(model, "x", qtype=kind, scale=np.float32(0.02), zero_point=max(lo, 0), lo=lo, hi=hi)
    made, _ = apply(model, ToQdq(weights=form, pack=pack))
    onnx.checker.check_model(made.to_proto(), full_check=True)
    again, trace = apply(from_proto(made.to_proto()), ReadQdq())
    assert not trace.notes
    assert bit_equal(run(again, X), run(model, X))
    tables = [apply(m, CollectQParams())[0].qparams for m in (model, again)]
    assert _table(tables[1]) == _table(tables[0])


def test_narrow_weight_range_needs_no_clip() -> None:
    model = weight(conv(), "w", scale=np.float32(0.003), lo=-127)
    for form in ("stored", "float"):
        made, _ = apply(model, ToQdq(weights=form))
        assert "Clip" not in ops(made)
        assert bit_equal(run(made, X), run(model, X))


def test_per_channel_keeps_the_axis_and_raises_old_opsets() -> None:
    model = parse(
        """g (float[2,3] x) => (float[2,4] y) <float[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}> {
            y = MatMul(x, w)
        }""",
        opset=11,
        ir_version=6,
    )
    weight(model, "w", scale=np.float32([0.1, 0.2, 0.3, 0.4]), axis=1)
    made, trace = apply(model, ToQdq())
    assert made.opset == 13
    assert any("opset 11 -> 13" in note for note in trace.notes)
    assert made.nodes("DequantizeLinear")[0].attrs["axis"] == 1
    x = np.ones((2, 3), np.float32)
    assert bit_equal(run(made, x), run(model, x))


def test_per_tensor_stays_at_opset_10() -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }", opset=10, ir_version=5)
    made, _ = apply(quantize(model, "x"), ToQdq())
    assert (made.opset, made.ir_version) == (10, 5)
    assert ops(made) == ["QuantizeLinear", "DequantizeLinear", "Relu"]


def test_asked_opset() -> None:
    made, _ = apply(quantize(conv(), "x"), ToQdq(opset=21))
    assert made.opset == 21


def test_every_pair_has_its_own_scalars() -> None:
    model = parse(
        """g (float[4] x) => (float[4] y) <float s = {0.1}, int8 z = {3}> {
            a = QuantizeLinear(x, s, z)
            b = DequantizeLinear(a, s, z)
            c = Relu(b)
            d = QuantizeLinear(c, s, z)
            e = DequantizeLinear(d, s, z)
            y = Neg(e)
        }"""
    )
    made, _ = apply(model, ReadQdq(), ToQdq())
    nodes = made.nodes("QuantizeLinear", "DequantizeLinear")
    for position in (1, 2):
        names = [n.inputs[position].name for n in nodes]
        assert sorted(names.count(n) for n in set(names)) == [2, 2]
        assert all(n.inputs[position].shape == () for n in nodes)


def test_int32_bias() -> None:
    model = quantize(conv(), "x", scale=np.float32(0.05))
    weight(model, "w", scale=np.float32([0.01, 0.02, 0.03, 0.04]), axis=0, lo=-127)
    want = run(model, X)
    made, _ = apply(model, QuantizeBias(), ToQdq())
    bias = tensor(made, "y").inputs[0].inputs[2].inputs[0]
    codes, scale = array(bias.inputs[0]), array(bias.inputs[1])
    assert codes.dtype == np.int32
    np.testing.assert_array_equal(scale, np.float32([0.01, 0.02, 0.03, 0.04]) * np.float32(0.05))
    (got,) = run(made, X)
    # Half a step of the accumulator, per channel.
    bound = scale.max() / 2 + 1e-5
    assert np.abs(got - want[0]).max() <= bound
    assert not made.qparams.of(Role.BIAS)
    plain, _ = apply(model, QuantizeBias(), ToQdq(bias="float"))
    assert bit_equal(run(plain, X), want)


def test_bias_row_for_a_missing_tensor_is_an_error() -> None:
    model = quantize(conv(), "x")
    model.qparams.add(QParams("bb", qtype("int32"), np.float32(0.1), 0, role=Role.BIAS))
    with pytest.raises(PassError, match="'bb'"):
        apply(model, ToQdq())


def test_bias_row_whose_readers_are_gone_is_an_error() -> None:
    model = quantize(conv(), "x")
    row = QParams("b", qtype("int32"), np.float32(0.1), 0, role=Role.BIAS)
    model.qparams.add(row.with_(readers=(Reader("elsewhere", 2),)))
    with pytest.raises(PassError, match="none of its consumers"):
        apply(model, ToQdq())


@pytest.mark.parametrize("name", sorted(QDQ))
def test_zoo_round_trip(name: str) -> None:
    """QDQ -> canonical -> QDQ: same outputs to the bit, and the same table when read again."""
    proto = ZOO[name]()
    read, _ = apply(from_proto(proto), ReadQdq(), CollectQParams())
    made, _ = apply(read, ToQdq())
    again, _ = apply(from_proto(made.to_proto()), ReadQdq(), CollectQParams())
    for seed in (0, 1):
        feeds = inputs(proto, seed)
        want = sessions.reference(proto).run(feeds).values()
        assert bit_equal(sessions.reference(made).run(feeds).values(), want)
        assert bit_equal(sessions.reference(again).run(feeds).values(), want)
    # A float weight that two quantizers share is stored twice: each has a tensor of its own then.
    names = name not in ("qdq_in_if", "qdq_shared_weight_four_scales")
    assert _table(again.qparams, names) == _table(read.qparams, names)


@pytest.mark.parametrize("name", sorted(QDQ))
def test_scales_as_vectors_of_one(name: str) -> None:
    """The same numbers in another rank; read back they are scalars again."""
    proto = ZOO[name]()
    read, _ = apply(from_proto(proto), ReadQdq(), CollectQParams())
    made, _ = apply(read, ToQdq(scales="vector"))
    left = {n.name for n in read.nodes("QuantizeLinear", "DequantizeLinear")}  # as they were
    nodes = [n for n in made.nodes("QuantizeLinear", "DequantizeLinear") if n.name not in left]
    assert all(len(t.shape) >= 1 for n in nodes for t in n.inputs[1:])
    feeds = inputs(proto, 0)
    want = sessions.reference(proto).run(feeds).values()
    assert bit_equal(sessions.reference(made).run(feeds).values(), want)
    again, _ = apply(from_proto(made.to_proto()), ReadQdq(), CollectQParams())
    scalars, _ = apply(from_proto(apply(read, ToQdq())[0].to_proto()), ReadQdq(), CollectQParams())
    assert _table(again.qparams) == _table(scalars.qparams)


def _table(rows: QParamTable, names: bool = True) -> list[str]:
    """The rows, in an order of their own; the node that was their source may have another name."""
    left_out: dict[str, object] = {"source": ""} if names else _UNNAMED
    return sorted(json.dumps({**row.to_json(), **left_out}, sort_keys=True) for row in rows)


_UNNAMED = {"source": "", "tensor": "", "readers": None}


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(qdq_graphs())
def test_random_round_trip(proto: onnx.ModelProto) -> None:
    read, _ = apply(from_proto(proto), ReadQdq(), CollectQParams())
    made, _ = apply(read, ToQdq())
    again, _ = apply(from_proto(made.to_proto()), ReadQdq(), CollectQParams())
    # Two quantizers of one float weight have stored codes of their own afterwards.
    weights = [row.tensor for row in read.qparams.of(Role.WEIGHT)]
    # So has a weight that is computed from another one.
    stored = {t.name for t in read.to_proto().graph.initializer}
    names = len(set(weights)) == len(weights) and set(weights) <= stored
    assert _table(again.qparams, names) == _table(read.qparams, names)
    feeds = inputs(proto)
    want = sessions.reference(proto).run(feeds)
    for model in (made, again):
        assert bit_equal(sessions.reference(model).run(feeds).values(), want.values())
