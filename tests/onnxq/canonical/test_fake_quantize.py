from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings

from onnxq.canonical.fake_quantize import (
    FAKE_QUANTIZE,
    container,
    function,
    is_fake_quantize,
    make,
    narrowest,
    params_of,
    set_params,
)
from onnxq.errors import PassError, QParamsError
from onnxq.graph import MAX_OPSET, Model, from_proto, load, save
from onnxq.graph.constants import array
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.running import sessions
from tests.models.build import parse, quantize, tensor, weight
from tests.models.strategies import QArrays, qparams_arrays

Array = npt.NDArray[np.generic]
RNG = np.random.default_rng(0)
IR = {**dict.fromkeys(range(9, 15), 7), **dict.fromkeys(range(15, 19), 8), 19: 9, 20: 9}


def single(params: QParams, shape: tuple[int, ...], opset: int = 17, kind: str = "float") -> Model:
    """x → FakeQuantize → Identity → y"""
    dims = ",".join(map(str, shape))
    text = f"g ({kind}[{dims}] x) => ({kind}[{dims}] y) {{ y = Identity(x) }}"
    model = parse(text, opset, IR.get(opset, 10))
    fields = {f: getattr(params, f) for f in ("scale", "zero_point", "axis", "block", "lo", "hi")}
    return quantize(model, "x", qtype=params.qtype.name, **fields)


def computed(model: Model, x: Array) -> Array:
    """What stock onnxruntime computes from a file the checker accepts."""
    proto = model.to_proto()
    onnx.checker.check_model(proto, full_check=True)
    feeds = {"x": x} | ({"c": np.array(True)} if len(proto.graph.input) > 1 else {})
    return sessions.reference(proto).run(feeds)["y"]


def assert_like_oracle(model: Model, params: QParams, x: Array) -> None:
    assert computed(model, x).tobytes() == params.fake(x).tobytes()


@settings(max_examples=150, deadline=None)
@given(qparams_arrays())
def test_equals_the_oracle(arrays: QArrays) -> None:
    """All four containers, narrow ranges, per channel; ties, huge values, subnormals."""
    kind = qtype(np.dtype(arrays.zero_point.dtype))
    params = QParams(
        "x", kind, arrays.scale, arrays.zero_point, axis=arrays.axis, lo=arrays.lo, hi=arrays.hi
    )
    assert_like_oracle(single(params, arrays.x.shape), params, arrays.x)


@pytest.mark.parametrize("opset", range(9, MAX_OPSET + 1))
@pytest.mark.parametrize("kind", ["int8", "uint8", "int4", "uint4", "int2", "int16", "uint16"])
def test_every_opset_and_type(opset: int, kind: str) -> None:
    t = qtype(kind)
    params = QParams("x", t, np.float32(0.3), np.int64(t.lo + 1), lo=t.lo + 1)
    model = single(params, (2, 8), opset)
    x = (RNG.normal(0, 0.2 * (t.hi - t.lo), (2, 8))).astype(np.float32)
    x[0, :3] = np.nan, np.inf, -np.inf
    assert_like_oracle(model, params, x)
    # The file's opset is raised as far as needed; the model's own stays.
    assert model.opset == opset
    assert model.ir_version == IR.get(opset, 10)
    need = 21 if t.bits > 8 else 15
    (imported,) = (o.version for o in model.to_proto().opset_import if not o.domain)
    assert imported == max(opset, need)
    assert bool(model.export_notes) == (opset < need)


FLOAT8 = ["float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"]


@pytest.mark.parametrize("opset", range(9, MAX_OPSET + 1))
@pytest.mark.parametrize("kind", FLOAT8)
@pytest.mark.parametrize("layout", ["tensor", "channel", "block"])
def test_float8_at_every_opset(opset: int, kind: str, layout: str) -> None:
    shape = {"tensor": (), "channel": (6,), "block": (4, 3, 8)}[layout]
    scale = RNG.uniform(0.01, 0.03, shape).astype(np.float32)
    axis, block = (None if layout == "tensor" else 1), (2 if layout == "block" else 0)
    params = QParams("x", qtype(kind), scale, np.int64(0), axis=axis, block=block)
    model = single(params, (4, 6, 8), opset)
    x = (RNG.normal(0, 1, (4, 6, 8)) * 10.0 ** RNG.uniform(-6, 4, (4, 6, 8))).astype(np.float32)
    x.flat[:5] = np.nan, np.inf, -np.inf, -0.0, 0.0
    assert_like_oracle(model, params, x)
    assert params_of(model.nodes(FAKE_QUANTIZE)[0]) == params
    (imported,) = (o.version for o in model.to_proto().opset_import if not o.domain)
    assert imported == max(opset, 21 if block else 19)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("opset", [11, 13, 21])
def test_per_channel(axis: int, opset: int) -> None:
    count = (3, 5)[axis]
    scale = RNG.uniform(0.01, 0.1, count).astype(np.float32)
    params = QParams("x", qtype("int8"), scale, RNG.integers(-9, 9, count), axis=axis, lo=-127)
    x = RNG.normal(0, 3, (3, 5)).astype(np.float32)
    assert_like_oracle(single(params, (3, 5), opset), params, x)


@pytest.mark.parametrize("opset", [17, 21, 26])
@pytest.mark.parametrize(("axis", "block"), [(0, 2), (1, 4)])
def test_blocks(opset: int, axis: int, block: int) -> None:
    shape = [4, 8]
    shape[axis] //= block
    scale = RNG.uniform(0.1, 1, shape).astype(np.float32)
    params = QParams("x", qtype("int4"), scale, RNG.integers(-8, 8, shape), axis=axis, block=block)
    model = single(params, (4, 8), opset)
    x = RNG.normal(0, 3, (4, 8)).astype(np.float32)
    assert_like_oracle(model, params, x)
    assert params_of(model.nodes(FAKE_QUANTIZE)[0]) == params


@pytest.mark.parametrize("opset", [13, 19, 21])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int4"])
def test_float16(opset: int, kind: str) -> None:
    scale = np.float16(0.1)
    params = QParams("x", qtype(kind), scale.astype(np.float32), np.int64(1))
    model = single(params, (2, 64), opset, "float16")
    assert model.nodes(FAKE_QUANTIZE)[0].inputs[1].dtype == np.float16
    x = RNG.normal(0, 5, (2, 64)).astype(np.float16)
    # Without +inf: in float16 alone onnxruntime gives it the lowest code.
    x[0, :4] = np.nan, -6e4, -np.inf, 6e4
    want = params.fake(x.astype(np.float32)).astype(np.float16)
    assert computed(model, x).tobytes() == want.tobytes()
    assert model.opset == opset


@pytest.mark.parametrize("scale", [1e-9, 1e6])
def test_scale_that_float16_cannot_hold(scale: float) -> None:
    params = QParams("x", qtype("int8"), np.float32(scale), np.int64(0))
    with pytest.raises(QParamsError, match="'x' is float16, but its scale does not fit float16"):
        single(params, (2,), 21, "float16")


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("inside", ["x", "s", "r"])
def test_inside_bodies(opset: int, inside: str) -> None:
    """On an outer tensor that only a body reads, within the body, and as its result."""
    model = parse(
        """g (bool c, float[2,3] x) => (float[2,3] y) {
             y = If (c) <then_branch = t () => (float[2,3] r) { s = Neg(x) r = Neg(s) },
                         else_branch = e () => (float[2,3] q) { q = Neg(x) }> }""",
        opset,
        IR.get(opset, 10),
    )
    quantize(model, inside, zero_point=3, lo=-100)
    x = RNG.normal(0, 9, (2, 3)).astype(np.float32)
    params = params_of(model.nodes(FAKE_QUANTIZE)[0])
    want = -params.fake(-x) if inside == "s" else params.fake(x)
    np.testing.assert_array_equal(computed(model, x), want)
    owner = model.nodes(FAKE_QUANTIZE)[0].owner
    assert (owner is model.graph) == (inside == "x")


def test_file_round_trip(tmp_path: Path) -> None:
    params = QParams("x", qtype("int8"), np.float32([0.1, 0.2]), np.array([1, 2]), axis=0, lo=-100)
    model = single(params, (2, 2), 13)
    save(model, tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx")
    assert [(f.domain, f.name) for f in proto.functions] == [("onnxq", "FakeQuantize")]
    again = load(tmp_path / "m.onnx")
    assert not again.functions
    assert params_of(again.nodes(FAKE_QUANTIZE)[0]) == params
    save(again, tmp_path / "n.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == (tmp_path / "n.onnx").read_bytes()
    x = RNG.normal(0, 5, (2, 2)).astype(np.float32)
    assert_like_oracle(again, params, x)


def test_a_model_without_quantizers_carries_no_function() -> None:
    proto = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }").to_proto()
    assert not proto.functions
    assert [o.domain for o in proto.opset_import] == [""]


def test_other_functions_stay() -> None:
    params = QParams("x", qtype("int8"), np.float32(0.1), np.int64(0))
    proto = single(params, (2,)).to_proto()
    other = onnx.FunctionProto()
    other.CopyFrom(proto.functions[0])
    other.domain, other.name = "mine", "Other"
    proto.functions.append(other)
    proto.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    names = [(f.domain, f.name) for f in from_proto(proto).to_proto().functions]
    assert sorted(names) == [("mine", "Other"), ("onnxq", "FakeQuantize")]


def test_function_states_its_contract() -> None:
    made = function(17)
    assert list(made.input) == ["x", "scale", "zero_point"]
    assert list(made.attribute) == ["quant_min", "quant_max"]
    assert {a.name: a.i for a in made.attribute_proto} == {"axis": 1, "block_size": 0}
    assert made.opset_import[0].version == 17


def test_constants_are_its_own_and_scalars_where_per_tensor() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")
    params = QParams("t", qtype("uint4"), np.float32([0.5]), np.int64([3]))
    for name in ("x", "a"):
        quantize(model, name, qtype="uint4", scale=params.scale, zero_point=params.zero_point)
    first, second = model.nodes(FAKE_QUANTIZE)
    for i in (1, 2):
        assert first.inputs[i] is not second.inputs[i]
        assert first.inputs[i].shape == ()
    assert first.inputs[2].dtype == np.uint8
    assert (first.attrs["quant_min"], first.attrs["quant_max"]) == (0, 15)


def test_params_of_tells_role_type_and_source() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    quantize(model, "x", qtype="int8", lo=-8, hi=7)
    weight(model, "w")
    found = {p.tensor: p for p in map(params_of, model.nodes(FAKE_QUANTIZE))}
    assert found["x"].role is Role.ACTIVATION
    assert found["w"].role is Role.WEIGHT
    assert found["x"].qtype.name == "int4"
    assert found["w"].source == "w.fake_quantize"


def test_bad_parameters_in_a_file_name_the_tensor() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    quantize(model, "x")
    node = model.nodes(FAKE_QUANTIZE)[0]
    node.inputs[1].values = np.asarray(np.float32(0))
    with pytest.raises(QParamsError, match=r"tensor 'x': scale 0\.0"):
        params_of(node)


def test_set_params_leaves_shared_constants_alone() -> None:
    model = parse("g (float16[4] x) => (float16[4] y) { y = Relu(x) }", 21, 10)
    quantize(model, "x")
    node = model.nodes(FAKE_QUANTIZE)[0]
    old = node.inputs[1]
    params = QParams("x", qtype("uint8"), np.float32([1, 2, 3, 4]), np.int64(7), axis=0, hi=200)
    set_params(model, node, params)
    assert params_of(node) == params
    assert node.inputs[1] is not old
    assert array(old) == np.float16(0.1)
    assert node.inputs[1].dtype == np.float16
    x = RNG.normal(0, 50, 4).astype(np.float16)
    want = np.maximum(params.fake(x.astype(np.float32)), 0).astype(np.float16)
    np.testing.assert_array_equal(computed(model, x), want)


def test_32_bits_are_refused() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    params = QParams("x", qtype("int32"), np.float32(0.1), np.int64(0))
    x = tensor(model, "x")
    with pytest.raises(PassError, match="int32 cannot be simulated"):
        make(model, x, x, params, model.graph)


@pytest.mark.parametrize(
    ("stored", "lo", "hi", "want"),
    [
        ("int8", -8, 7, "int4"),
        ("int8", -7, 7, "int4"),
        ("int8", -2, 1, "int2"),
        ("int8", -9, 7, "int8"),
        ("uint8", 0, 15, "uint4"),
        ("uint8", 0, 16, "uint8"),
        ("int16", -128, 127, "int8"),
        ("int16", -32768, 127, "int16"),
        ("uint16", 0, 65535, "uint16"),
    ],
)
def test_narrowest_type(stored: str, lo: int, hi: int, want: str) -> None:
    kind = narrowest(qtype(stored), lo, hi)
    assert kind.name == want
    assert container(kind).bits <= qtype(stored).bits


def test_is_fake_quantize_looks_at_the_domain() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    relu = model.nodes("Relu")[0]
    assert not is_fake_quantize(relu)
    relu.op = "FakeQuantize"
    assert not is_fake_quantize(relu)
    relu.domain = "onnxq"
    assert is_fake_quantize(relu)
    assert not is_fake_quantize(None)
