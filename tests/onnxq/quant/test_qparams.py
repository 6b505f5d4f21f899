from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import QParamsError
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import QTYPES, QType, qtype
from onnxq.running import sessions
from tests.models.strategies import QArrays, qparams_arrays

Array = npt.NDArray[np.generic]
STORED = [t for t in QTYPES.values() if t.bits < 32 and not t.floating]
FLOAT8 = [t for t in QTYPES.values() if t.floating]
FLOAT_MAX = float(np.finfo(np.float32).max)
SUBNORMAL = float(np.float32(1e-45))


def q_and_dq(params: QParams, x: Array) -> tuple[Array, Array]:
    """Codes and values of onnxruntime's QuantizeLinear and DequantizeLinear."""
    opset = max(params.qtype.opset, 21)
    zero_point = params.zero_point.astype(params.qtype.dtype)
    constants = [
        numpy_helper.from_array(params.scale, "s"),
        numpy_helper.from_array(zero_point, "z"),
    ]
    attrs = {} if params.axis is None else {"axis": params.axis, "block_size": params.block}
    wide = TensorProto.FLOAT if params.qtype.floating else TensorProto.INT32
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attrs),
        helper.make_node("Cast", ["q"], ["codes"], to=wide),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attrs),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [
            helper.make_tensor_value_info("codes", wide, x.shape),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    out = sessions.reference(model).run({"x": x})
    return out["codes"], out["y"]


def assert_oracle(params: QParams, x: Array) -> None:
    codes, y = q_and_dq(params, x)
    np.testing.assert_array_equal(params.quantize(x), codes)
    assert params.dequantize(codes).tobytes() == y.tobytes()
    assert params.fake(x).tobytes() == y.tobytes()


def full_range(given_: QArrays) -> QParams:
    kind = qtype(np.dtype(given_.zero_point.dtype))
    return QParams("t", kind, given_.scale, given_.zero_point, axis=given_.axis)


@settings(max_examples=200, deadline=None)
@given(qparams_arrays())
def test_oracle_equals_onnxruntime(arrays: QArrays) -> None:
    """Ties, range ends, huge values, subnormals and negative zeros, per tensor and channel."""
    assert_oracle(full_range(arrays), arrays.x)


@settings(max_examples=150, deadline=None)
@given(
    hnp.arrays(np.float32, st.integers(1, 20), elements=st.floats(width=32)),
    st.floats(SUBNORMAL, FLOAT_MAX, width=32),
    st.sampled_from(["int8", "uint8", "int16", "uint16"]),
)
def test_oracle_on_any_float_and_any_scale(x: Array, scale: float, kind: str) -> None:
    """NaN, infinities and overflow of x / scale included."""
    t = qtype(kind)
    for zero_point in (t.lo, t.hi, (t.lo + t.hi) // 2):
        params = QParams("t", t, np.float32(scale), np.int64(zero_point))
        with np.errstate(over="ignore"):
            assert_oracle(params, x)


@pytest.mark.parametrize("kind", STORED, ids=str)
def test_every_type_at_its_ends_and_at_ties(kind: QType) -> None:
    steps = np.arange(kind.lo - 2, kind.hi + 3, max(1, (kind.hi - kind.lo) // 512))
    halves = (steps[:, None] + np.array([0, 0.5, 0.4999999, 0.5000001])).astype(np.float32)
    # For the 2-bit types, and for these alone, onnxruntime gives NaN and infinities any code.
    # onnxq keeps such tensors in 8 bits until a writer packs constants, where they do not occur.
    special = np.float32([[np.nan, np.inf, -np.inf, -0.0] if kind.bits > 2 else [9, 1e6, -9, -0.0]])
    for zero_point in (0, kind.lo, kind.hi):
        params = QParams("t", kind, np.float32(0.25), np.int64(zero_point))
        x = np.concatenate([(halves - zero_point) * np.float32(0.25), special]).astype(np.float32)
        assert_oracle(params, x)


@pytest.mark.parametrize(("axis", "block"), [(0, 2), (1, 3), (-1, 4), (1, 8)])
@pytest.mark.parametrize("kind", ["int4", "uint8"])
def test_blocks(axis: int, block: int, kind: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(0, 3, (4, 8)).astype(np.float32)
    shape = list(x.shape)
    shape[axis] = -(-shape[axis] // block)
    t = qtype(kind)
    params = QParams(
        "t",
        t,
        rng.uniform(0.1, 1, shape).astype(np.float32),
        rng.integers(t.lo, t.hi + 1, shape),
        axis=axis,
        block=block,
    )
    assert_oracle(params, x)


@pytest.mark.parametrize("kind", FLOAT8, ids=str)
def test_float8_at_every_value_and_tie(kind: QType) -> None:
    values = np.arange(256, dtype=np.uint8).view(kind.dtype).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    assert (values.min(), values.max()) == (kind.lo, kind.hi)
    ties = (values[1:] + values[:-1]) / 2
    up, down = np.float32(np.inf), np.float32(-np.inf)
    special = np.float32([np.nan, up, down, -0.0, 1e-30, -1e-30, kind.hi * 1.02, kind.lo * 4.0])
    x = np.concatenate([values, ties, np.nextafter(ties, up), np.nextafter(ties, down), special])
    for scale in (1, 0.25, 0.37, 3e-6):
        params = QParams("t", kind, np.float32(scale), np.int64(0))
        assert_oracle(params, x)
        assert_oracle(params, x * np.float32(scale))
        on_grid = params.fake(x)
        assert params.fake(on_grid).tobytes() == on_grid.tobytes()


@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(np.float32, st.integers(1, 20), elements=st.floats(width=32)),
    st.floats(2.0**-100, 2.0**100, width=32),
    st.sampled_from(FLOAT8),
)
def test_float8_oracle_on_any_float(x: Array, scale: float, kind: QType) -> None:
    with np.errstate(over="ignore"):
        params = QParams("t", kind, np.float32(scale), np.int64(0))
        np.testing.assert_array_equal(params.fake(x), q_and_dq(params, x)[1])


def test_float8_has_no_zero_point_and_no_narrow_range() -> None:
    kind = qtype("float8e4m3fn")
    with pytest.raises(QParamsError, match="zero point 1 for codes of type float8e4m3fn"):
        QParams("t", kind, np.float32(1), np.int64(1))
    with pytest.raises(QParamsError, match="narrower than float8e4m3fn"):
        QParams("t", kind, np.float32(1), np.int64(0), hi=240)


def test_float8_types_of_one_range_are_two_grids() -> None:
    first = QParams("t", qtype("float8e5m2"), np.float32(1), np.int64(0))
    assert not first.same_grid(first.with_(qtype=qtype("float8e5m2fnuz")))


def test_division_not_multiplication_by_the_reciprocal() -> None:
    scale = np.float32(0.0471)
    x = np.arange(-300, 300, dtype=np.float32) * scale / np.float32(2)
    params = QParams("t", qtype("int16"), scale, np.int64(0))
    other = np.rint(x * (np.float32(1) / scale)).astype(np.int64)
    assert (params.quantize(x) != other).any()
    assert_oracle(params, x)


def test_narrow_range_clamps_and_nan_is_the_lowest_code() -> None:
    params = QParams("t", qtype("int8"), np.float32(1), np.int64(1), lo=-7, hi=7)
    x = np.float32([-100, -8, 5.5, 6.5, 100, np.nan])
    assert params.quantize(x).tolist() == [-7, -7, 7, 7, 7, -7]
    assert params.fake(x).tolist() == [-8, -8, 6, 6, 6, -8]


@given(qparams_arrays())
def test_fake_is_idempotent_and_within_range(arrays: QArrays) -> None:
    params = full_range(arrays).with_(lo=None, hi=None)
    once = params.fake(arrays.x)
    assert params.fake(once).tobytes() == once.tobytes()
    low, high = params.with_(tensor="u").range
    scale, _ = params.broadcast(arrays.x.shape)
    view = [-1 if i == params.axis else 1 for i in range(arrays.x.ndim)]
    if params.axis is not None:
        low, high = low.reshape(view), high.reshape(view)
    assert np.all(once >= low - scale * 1e-2)
    assert np.all(once <= high + scale * 1e-2)


# -- validation -------------------------------------------------------------------------------

GOOD = {"tensor": "conv1.out", "qtype": qtype("int8"), "scale": np.float32(0.1), "zero_point": 0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scale": 0.0}, "scale 0.0 is not a positive finite number"),
        ({"scale": -0.5}, "scale -0.5 is not a positive"),
        ({"scale": np.nan}, "scale nan is not a positive"),
        ({"scale": np.inf}, "scale inf is not a positive"),
        ({"scale": 1e300}, "scale inf is not a positive"),
        ({"scale": 1e-60}, "scale 0.0 is not a positive"),
        ({"scale": [1, np.nan, 2], "axis": 0}, "scale nan is not a positive"),
        ({"scale": [1, 2]}, "2 scales but no axis"),
        ({"scale": []}, "there is no scale"),
        ({"scale": [], "zero_point": [], "axis": 0}, "there is no scale"),
        ({"scale": [[1, 2]], "axis": 1}, r"per-channel scale has shape \(1, 2\)"),
        ({"scale": 1.0, "axis": 0, "block": 2}, "per-block scale is a scalar"),
        ({"scale": [1, 2], "zero_point": [0, 0, 0], "axis": 0}, "3 zero points for 2 scales"),
        ({"zero_point": 128}, "zero point 128 is outside -128..127"),
        ({"zero_point": -128, "lo": -127}, "zero point -128 is outside -127..127"),
        ({"scale": [1, 2], "zero_point": [0, 999], "axis": 0}, "zero point 999 is outside"),
        ({"zero_point": 0.5}, "zero point 0.5 is not an integer"),
        ({"zero_point": np.inf}, "zero point inf is not an integer"),
        ({"zero_point": np.nan}, "zero point nan is not an integer"),
        ({"lo": -129}, r"range -129..127 does not fit int8 \(-128..127\)"),
        ({"hi": 128}, "range -128..128 does not fit int8"),
        ({"lo": 5, "hi": 5, "zero_point": 5}, "range 5..5 does not fit"),
    ],
)
def test_bad_values_are_refused_naming_the_tensor(changes: dict[str, object], words: str) -> None:
    with pytest.raises(QParamsError, match=f"^tensor 'conv1.out': {words}") as caught:
        QParams(**{**GOOD, **changes})  # type: ignore[arg-type]
    assert caught.value.fix


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scale": np.ones(4), "axis": 1}, "4 scales for 3 channels"),
        ({"scale": np.ones(3), "axis": 2}, "axis 2 does not exist"),
        ({"scale": np.ones(3), "axis": -3}, "axis -3 does not exist"),
        ({"scale": np.ones((2, 3)), "axis": 1, "block": 2}, r"need scales of shape \[2, 2\]"),
    ],
)
def test_shapes_that_do_not_fit(fields: dict[str, object], words: str) -> None:
    params = QParams(**{**GOOD, **fields})  # type: ignore[arg-type]
    with pytest.raises(QParamsError, match=f"'conv1.out': .*{words}"):
        params.quantize(np.zeros((2, 3), np.float32))


def test_values_are_copied_and_read_only() -> None:
    scale = np.float32([1, 2])
    params = QParams("t", qtype("int8"), scale, np.int64(0), axis=0)
    scale[0] = 7
    assert params.scale.tolist() == [1, 2]
    assert scale.flags.writeable
    assert params.zero_point.tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        params.scale[0] = 7


def test_per_tensor_values_are_scalars() -> None:
    params = QParams("t", qtype("int8"), np.float32([0.5]), np.int64([3]))
    assert params.scale.shape == params.zero_point.shape == ()


def test_properties() -> None:
    params = QParams("t", qtype("int8"), np.float32(0.5), np.int64(0))
    assert (params.lo, params.hi) == (-128, 127)
    assert params.is_symmetric
    assert params.is_per_tensor
    assert not params.is_narrow
    assert params.with_(lo=-127).is_narrow
    assert params.range == (-64, 63.5)
    assert not params.with_(zero_point=np.int64(1)).is_symmetric
    assert not QParams("t", qtype("uint8"), np.float32(1), np.int64(0)).is_symmetric


def test_equality_and_grids() -> None:
    params = QParams("t", qtype("int8"), np.float32(0.5), np.int64(0), lo=-8, hi=7)
    same = params.with_(source="elsewhere")
    assert params == same
    assert params != params.with_(tensor="u")
    assert params.same_grid(params.with_(tensor="u", role=Role.WEIGHT))
    assert params.same_grid(params.with_(qtype=qtype("int4")))
    assert params != params.with_(qtype=qtype("int4"))
    for change in ({"scale": np.float32(1)}, {"zero_point": np.int64(1)}, {"hi": 6}):
        assert not params.same_grid(params.with_(**change))
    channels = QParams("t", qtype("int8"), np.float32([0.5, 0.5]), np.int64(0), axis=0)
    assert not channels.same_grid(channels.with_(axis=1))
    assert len({p.grid_key() for p in (params, same, channels)}) == 2


def test_types() -> None:
    assert {t.name: (t.lo, t.hi) for t in STORED} == {
        "int8": (-128, 127),
        "uint8": (0, 255),
        "int16": (-32768, 32767),
        "uint16": (0, 65535),
        "int4": (-8, 7),
        "uint4": (0, 15),
        "int2": (-2, 1),
        "uint2": (0, 3),
    }
    assert qtype(np.dtype(ml_dtypes.int4)).name == "int4"
    assert QTYPES["int16"].onnx == TensorProto.INT16
    with pytest.raises(QParamsError, match="'int9' is not a quantization type") as caught:
        qtype("int9")
    assert "int8" in caught.value.fix
    with pytest.raises(QParamsError, match="'float32' is not a quantization type"):
        qtype(np.dtype(np.float32))


# -- JSON -------------------------------------------------------------------------------------


def round_trip(params: QParams) -> QParams:
    return QParams.from_json(json.loads(json.dumps(params.to_json())))


@given(
    hnp.arrays(np.float32, st.integers(1, 5), elements=st.floats(SUBNORMAL, FLOAT_MAX, width=32)),
    st.sampled_from([t.name for t in QTYPES.values()]),
)
def test_json_keeps_every_bit(scale: Array, kind: str) -> None:
    params = QParams("t", qtype(kind), scale, np.zeros(scale.size), axis=1, source="node")
    back = round_trip(params)
    assert back.scale.tobytes() == params.scale.tobytes()
    assert back == params
    assert back.source == "node"


@pytest.mark.parametrize("scale", [SUBNORMAL, float(np.float32(1.1754942e-38)), 0.1, FLOAT_MAX])
def test_json_of_extreme_scales(scale: float) -> None:
    params = QParams("t", qtype("uint8"), np.float32(scale), np.int64(7), lo=3, hi=200)
    assert round_trip(params) == params


def test_json_of_everything() -> None:
    params = QParams(
        'gewicht/✓ {"a"}',
        qtype("int4"),
        np.float32([[0.1, 0.2], [0.3, 0.4]]),
        np.array([[0, 1], [2, 3]]),
        axis=-1,
        block=8,
        lo=-7,
        role=Role.WEIGHT,
        readers=(Reader("conv", 1), Reader("", 0)),
    )
    assert round_trip(params) == params
    table = QParamTable([params, params.with_(tensor="b", readers=None)])
    assert QParamTable.loads(table.dumps()).rows == table.rows
    document = json.loads(table.dumps())
    assert (document["schema"], document["version"]) == ("onnxq.qparams", 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not an onnxq quantization table: line 1 column 2"),
        ("[" * 100_000, "nested too deeply"),
        ('{"schema": "onnxq.qparams", "version": ' + "1" * 5000 + "}", "a number of 5000 digits"),
        (
            '{"schema": "onnxq.qparams", "version": 1, "version": 1, "rows": []}',
            "duplicate key 'version'",
        ),
        ('{"schema": "onnxq.qparams", "version": 1, "rows": [], "raws": []}', "unknown key 'raws'"),
        ("[]", "not an onnxq quantization table"),
        ('{"schema": "onnxq.ranges", "version": 1, "rows": []}', "not an onnxq"),
        ('{"schema": "onnxq.qparams", "version": 2, "rows": []}', "version 2"),
        ('{"schema": "onnxq.qparams", "version": "1", "rows": []}', 'version "1"'),
        ('{"schema": "onnxq.qparams", "version": 0, "rows": []}', "version 0"),
        ('{"schema": "onnxq.qparams", "rows": []}', "version null"),
        ('{"schema": "onnxq.qparams", "version": 1}', "key 'rows' is missing"),
        ('{"schema": "onnxq.qparams", "version": 1, "rows": {}}', "'rows' is not a list of rows"),
        ('{"schema": "onnxq.qparams", "version": 1, "rows": [3]}', "a row .* is 3"),
    ],
)
def test_tables_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(QParamsError, match=words) as caught:
        QParamTable.loads(text)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scale": None}, "row for tensor 't': 'scale' is null"),
        ({"scale": {}}, "row for tensor 't'"),
        ({"scale": "wide"}, "row for tensor 't': 'scale' is \"wide\""),
        ({"scale": "1_0"}, "row for tensor 't': 'scale' is \"1_0\""),
        ({"scale": True}, "row for tensor 't': 'scale' is true"),
        ({"scale": [[1], [1, 2]]}, "row for tensor 't': 'scale'"),
        ({"scale": float("nan")}, "row for tensor 't': 'scale' is NaN"),
        ({"zero_point": 1.5}, "row for tensor 't': 'zero_point' holds 1.5"),
        ({"zero_point": 2**64}, "row for tensor 't': 'zero_point' holds 1.8"),
        ({"tensor": 3}, "'tensor' is 3"),
        ({"axis": "first"}, "row for tensor 't'"),
        ({"axis": 0.5}, "row for tensor 't'"),
        ({"axis": True}, "row for tensor 't': 'axis' is true"),
        ({"lo": None}, "row for tensor 't': 'lo' is null"),
        ({"role": "king"}, "row for tensor 't': 'role' is \"king\""),
        ({"type": "int9"}, "'int9' is not a quantization type"),
        ({"type": 8}, "'type' is 8"),
        ({"readers": "ab"}, "row for tensor 't': 'readers'"),
        ({"readers": [["a", True]]}, "row for tensor 't': 'readers'"),
        ({"readers": [["a", -1]]}, "row for tensor 't': 'readers'"),
        ({"readers": [["a"]]}, "row for tensor 't'"),
        ({"scales": 1}, "row for tensor 't': unknown key 'scales'"),
    ],
)
def test_rows_that_cannot_be_read(changes: dict[str, object], words: str) -> None:
    row = QParams("t", qtype("int8"), np.float32(0.1), np.int64(0)).to_json()
    with pytest.raises(QParamsError, match=words):
        QParams.from_json({**row, **changes})


@pytest.mark.parametrize("key", ["tensor", "type", "scale", "zero_point"])
def test_missing_keys(key: str) -> None:
    row = QParams("t", qtype("int8"), np.float32(0.1), np.int64(0)).to_json()
    del row[key]
    with pytest.raises(QParamsError, match=f"key '{key}' is missing"):
        QParams.from_json(row)


# -- the table --------------------------------------------------------------------------------


def test_table() -> None:
    a = QParams("a", qtype("int8"), np.float32(0.1), np.int64(0))
    b = a.with_(tensor="b", role=Role.WEIGHT)
    table = QParamTable([a])
    copy = table.copy()
    table.add(b)
    table.extend([b.with_(tensor="c"), b.with_(tensor="c")])
    assert len(copy) == 1
    assert [row.tensor for row in table] == ["a", "b", "c", "c"]
    assert "b" in table
    assert "d" not in table
    assert table["b"] == b
    assert [row.tensor for row in table.of(Role.WEIGHT)] == ["b", "c", "c"]
    with pytest.raises(QParamsError, match="no row for tensor 'd'"):
        table["d"]
    with pytest.raises(QParamsError, match="'c' has 2 rows"):
        table["c"]
    with pytest.raises(QParamsError, match="no row for tensor 'a'"):
        QParamTable()["a"]


def test_onnx_types_agree() -> None:
    for kind in QTYPES.values():
        assert onnx.helper.tensor_dtype_to_np_dtype(kind.onnx) == kind.dtype
