"""Types, layouts and constants of Q/DQ parameters, as tools write them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import QParamsError
from onnxq.graph import MAX_OPSET, Model, from_proto
from onnxq.quant.qparams import Role
from onnxq.quant.qtypes import QTYPES, qtype
from passes.read_qdq import ReadQdq
from passes.to_qdq import ToQdq
from tests.models.build import apply, bit_equal, ops, parse, reasons, run
from tests.models.stored_codes import stored
from tests.models.zoo_build import Build

X = np.linspace(-30, 30, 24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("attribute", "on"), [("precision", "QuantizeLinear"), ("output_dtype", "DequantizeLinear")]
)
@pytest.mark.parametrize(("float_type", "read"), [(1, True), (10, False)])
def test_other_float_types_of_opset_23(
    attribute: str, on: str, float_type: int, read: bool
) -> None:
    attrs = {on: f"<{attribute}={float_type}>"}
    model = parse(
        f"""g (float[2,3,4] x) => (y) <float s = {{0.1}}, uint8 z = {{7}}> {{
            q = QuantizeLinear{attrs.get("QuantizeLinear", "")}(x, s, z)
            y = DequantizeLinear{attrs.get("DequantizeLinear", "")}(q, s, z)
        }}""",
        opset=23,
        ir_version=10,
    )
    _, trace = apply(model, ReadQdq())
    assert bool(trace.rewrites) == read
    assert read or f"its {attribute} is float16" in reasons(trace)


def test_code_type_without_zero_point_is_stated() -> None:
    model = parse(
        """g (float[2,3,4] x) => (float[2,3,4] y) <float s = {0.1}> {
            q = QuantizeLinear<output_dtype=5>(x, s)
            y = DequantizeLinear(q, s)
        }""",
        opset=21,
        ir_version=10,
    )
    read, _ = apply(model, ReadQdq())
    assert params_of(read.nodes(FAKE_QUANTIZE)[0]).qtype.name == "int16"
    assert bit_equal(run(model, X), run(read, X))


KINDS = [t for t in QTYPES.values() if t.bits <= 16 and not t.floating]
SPELLINGS = [("", t.name, o) for t in KINDS for o in range(t.opset, MAX_OPSET + 1)]
SPELLINGS += [
    ("com.microsoft", t.name, o) for t in KINDS if t.bits > 2 for o in range(10, MAX_OPSET + 1)
]


@pytest.mark.parametrize(("domain", "kind", "opset"), SPELLINGS)
def test_types_at_every_opset(domain: str, kind: str, opset: int) -> None:
    t = qtype(kind)
    b = Build(opset)
    step, zero = b.init(np.float32(0.3)), b.codes(1, t.onnx)
    x = b.input("x", [2, 3, 4])
    (q,) = b.ops("QuantizeLinear", x, step, zero, outs=["q"], domain=domain)
    (y,) = b.ops("DequantizeLinear", q, step, zero, outs=["y"], domain=domain)
    b.typed_output(y, [2, 3, 4])
    opsets = [onnx.helper.make_opsetid(d, v) for d, v in {"": opset, domain or "x": 1}.items()]
    proto = onnx.helper.make_model(b.graph(), opset_imports=opsets, ir_version=b.ir)
    read, _ = apply(from_proto(proto), ReadQdq())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype, int(params.zero_point)) == (t, 1)
    assert bit_equal(run(proto, X), run(read, X))


# -- constants ----------------------------------------------------------------------------------

PARAMETERS = {
    "Identity": "s = Identity(s0)  z = Identity(z0)",
    "Cast": "h = Cast<to=11>(s0)  s = Cast<to=1>(h)  i = Cast<to=6>(z0)  z = Cast<to=2>(i)",
    "Reshape": "n = Constant<value_ints=[1]>()  v = Reshape(s0, n)  s = Squeeze(v)"
    "  z = Identity(z0)",
    "Mul": "c = Constant<value_float=0.5>()  s = Mul(s0, c)  z = Identity(z0)",
    "Div": "c = Constant<value_float=127.0>()  s = Div(s0, c)  z = Add(z0, z0)",
}


@pytest.mark.parametrize("what", PARAMETERS)
def test_parameters_behind_constant_operators(what: str) -> None:
    model = parse(
        f"""g (float[2,3,4] x) => (float[2,3,4] y) <float s0 = {{0.7}}, uint8 z0 = {{7}}> {{
            {PARAMETERS[what]}
            q = QuantizeLinear(x, s, z)
            y = DequantizeLinear(q, s, z)
        }}"""
    )
    read, trace = apply(model, ReadQdq())
    assert ops(read) == ["FakeQuantize"]
    assert not trace.skips
    assert bit_equal(run(model, X), run(read, X))


def test_codes_and_bounds_behind_constant_operators() -> None:
    model = parse(
        """g (float[3,2] x) => (float[3,2] y)
        <int8[2,3] c = {-8, 7, 100, 3, -100, 2}, float[1,2] s0 = {0.5, 0.25}, int64 b = {9}> {
            w = Transpose<perm=[1,0]>(c)
            s = Squeeze(s0)
            n = ConstantOfShape<value = int32[1] {0}>(two)
            z = Cast<to=3>(n)
            two = Constant<value_ints=[2]>()
            hi = Cast<to=3>(b)
            lo = Neg(hi)
            k = Clip(w, lo, hi)
            d = DequantizeLinear<axis=1>(k, s, z)
            y = Mul(x, d)
        }"""
    )
    read, _ = apply(model, ReadQdq())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.lo, params.hi, params.axis) == (-9, 9, 1)
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(3, 2)
    assert bit_equal(run(model, x), run(read, x))


# -- what only some tools write -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int8, np.int16])
def test_stored_codes_with_an_int32_zero_point_have_their_own_type(kind: type) -> None:
    codes = np.arange(-3, 3).reshape(2, 3).astype(kind)
    model = stored(codes, np.float32([0.5, 0.1]), np.int32([1, -2]), axis=0)
    read, _ = apply(model, ReadQdq())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert params.qtype.dtype == kind
    want = (codes - np.array([[1], [-2]])) * np.float32([[0.5], [0.1]])
    assert bit_equal(run(read, np.ones((2, 3), np.float32)), [want.astype(np.float32)])


def test_zero_point_of_another_type_than_the_codes_is_refused() -> None:
    model = stored(np.zeros((2, 3), np.uint8), np.float32(1), np.int8(0))
    with pytest.raises(QParamsError, match="contains uint8 codes, but its zero point is int8"):
        apply(model, ReadQdq())


def test_int64_codes_are_read_as_int32_where_they_fit() -> None:
    codes = np.array([2**31 - 1, -(2**31), 5])
    read, _ = apply(stored(codes, np.float32(2**-20), np.int32(0)), ReadQdq())
    (row,) = read.qparams.of(Role.BIAS)
    assert row.qtype.name == "int32"


@pytest.mark.parametrize(
    "scale",
    [
        np.float32(2**-30),
        np.float32([2**-30, 2**-31, 2**-29]),
        np.float32([-(2**-30), 2**-31, -(2**-29)]),
    ],
)
def test_int64_codes_of_more_bits_have_a_coarser_scale_each(scale: np.ndarray) -> None:
    """As of biases for a chip whose accumulators have 40 bits."""
    values = np.float32([511.99997, -31.123457, 1e-6])
    codes = np.round(values / scale.astype(np.float64)).astype(np.int64) + 1
    assert np.abs(codes).max() > 2**38
    zero = np.full(scale.shape, 1, np.int32)
    model = stored(codes, scale, zero, axis=0)
    read, _ = apply(model, ReadQdq())
    (row,) = read.qparams.of(Role.BIAS)
    assert (row.qtype.name, row.axis) == ("int32", 0)
    assert row.quantize(values).max() < 2**30
    want = ((codes - 1) * scale.astype(np.float64)).astype(np.float32)
    assert np.array_equal(row.fake(want), want)
    assert bit_equal(run(read, np.ones(3, np.float32)), [want])


def test_int64_codes_of_more_bits_that_are_no_bias_are_refused() -> None:
    model = stored(np.full((2, 3), 2**40), np.float32(1), np.int32(0))
    with pytest.raises(QParamsError, match="int64 codes that do not fit int32"):
        apply(model, ReadQdq())


def wide_pair(weights: str) -> Model:
    """A Q with an int32 zero point beside stored codes with such zero points."""
    return parse(
        f"""g (float[2,3] x) => (float[2,3] y)
        <float s = {{0.001}}, int32 z = {{0}}, {weights}, float t = {{1}}> {{
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            w = DequantizeLinear(c, t, z)
            y = Mul(d, w)
        }}"""
    )


def test_int32_zero_point_means_the_type_of_the_stored_codes() -> None:
    read, _ = apply(wide_pair("int16[2,3] c = {1,1,1,1,1,1}"), ReadQdq())
    x = np.float32([[0.5, -40, 40], [0.0005, 0.0015, 0]])
    want = np.clip(np.rint(x / np.float32(0.001)), -32768, 32767).astype(np.float32)
    assert bit_equal(run(read, x), [want * np.float32(0.001)])


def test_floats_where_codes_should_be_stored_tell_no_type() -> None:
    model = wide_pair("float[2,3] c = {1,1,1,1,1,1}")
    with pytest.raises(QParamsError, match="int32"):
        apply(model, ReadQdq())


def test_int32_zero_point_beside_int64_codes_means_16_bits() -> None:
    """8-bit weights tell nothing: their own zero points are int8."""
    read, _ = apply(wide_pair("int64[3] c = {1,1,1}"), ReadQdq())
    (node,) = read.nodes(FAKE_QUANTIZE)
    assert params_of(node).qtype.name == "int16"


def test_int32_zero_point_without_stored_codes_is_refused() -> None:
    with pytest.raises(
        QParamsError, match=r"'x'.*int32.*no stored codes specify the number of bits"
    ):
        apply(wide_pair("int32[2,3] c = {1,1,1,1,1,1}"), ReadQdq())


def test_negative_scale_of_float8_codes_is_mirrored() -> None:
    codes = np.float32([[448, -2, 0.5], [-448, 0.001953125, 3]]).astype(ml_dtypes.float8_e4m3fn)
    model = stored(codes, np.float32([-0.5, 0.25]), None, axis=0)
    read, _ = apply(model, ReadQdq())
    assert (params_of(read.nodes(FAKE_QUANTIZE)[0]).scale > 0).all()
    x = np.ones((2, 3), np.float32)
    assert bit_equal(run(read, x), run(model, x))


def test_clamped_codes_that_are_cast_are_left_with_the_reason() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y)
        <int32[2] c = {300, -5}, int32 lo = {-9}, int32 hi = {9}, float s = {0.5}> {
            k = Clip(c, lo, hi)
            i = Cast<to=3>(k)
            d = DequantizeLinear(i, s)
            y = Mul(x, d)
        }"""
    )
    read, trace = apply(model, ReadQdq())
    assert "DequantizeLinear" in ops(read)
    assert "its clamped int32 codes are cast" in reasons(trace)


@pytest.mark.parametrize("shape", [(3, 1), (1, 2)])
def test_scales_that_keep_the_rank(shape: tuple[int, ...]) -> None:
    codes = np.arange(-3, 3, dtype=np.int8).reshape(3, 2)
    scale = np.linspace(0.1, 0.7, 6, dtype=np.float32)[: max(shape)].reshape(shape)
    read, _ = apply(stored(codes, scale, None), ReadQdq())
    assert params_of(read.nodes(FAKE_QUANTIZE)[0]).axis == shape.index(max(shape))
    want = codes.astype(np.float32) * scale
    assert bit_equal(run(read, np.ones((3, 2), np.float32)), [want])


def test_scales_for_all_axes_but_one_are_one_block() -> None:
    codes = np.arange(-15, 15, dtype=np.int8).reshape(2, 3, 5)
    scale = np.linspace(0.1, 0.7, 6, dtype=np.float32).reshape(2, 3)
    read, _ = apply(stored(codes, scale, None, axis=0), ReadQdq())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.axis, params.block, params.scale.shape) == (2, 5, (2, 3, 1))
    want = codes.astype(np.float32) * scale[:, :, None]
    written, _ = apply(read, ToQdq())
    for model in (read, written):
        assert bit_equal(run(model, np.ones((2, 3, 5), np.float32)), [want])


def test_scales_of_blocks_may_hold_for_all_along_other_axes() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 6, 3)).astype(np.float32)
    scale = rng.uniform(0.1, 0.3, (2, 2, 1)).astype(np.float32)
    zero = np.array([3, -2, 0, 5], np.int8).reshape(2, 2, 1)
    b = Build(21)
    parameters = [b.init(scale), b.init(zero)]
    codes = b.op("QuantizeLinear", b.init(values), *parameters, axis=1, block_size=3)
    w = b.op("DequantizeLinear", codes, *parameters, axis=1, block_size=3)
    b.typed_output(b.op("Mul", b.input("x", values.shape), w), values.shape)
    read, trace = apply(from_proto(b.model()), ReadQdq())
    assert trace.skips == []
    steps, start = (np.repeat(p, 3, axis=1) for p in (scale, zero.astype(np.float32)))
    want = (np.clip(np.rint(values / steps) + start, -128, 127) - start) * steps
    for model in (read, apply(read, ToQdq())[0]):
        assert bit_equal(run(model, np.ones(values.shape, np.float32)), [want])


def test_scales_may_be_stored_as_codes() -> None:
    """Per block a small integer, per channel what it counts in."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 4)).astype(np.float32)
    b = Build(21)
    counts = b.init(rng.integers(1, 16, (2, 4)).astype(np.uint8))
    unit = b.init(rng.uniform(0.01, 0.03, 4).astype(np.float32))
    scale = b.op("DequantizeLinear", counts, unit, axis=1)
    zero = b.init(np.zeros((2, 4), np.int8))
    codes = b.op("QuantizeLinear", b.init(values), scale, zero, axis=0, block_size=3)
    w = b.op("DequantizeLinear", codes, scale, zero, axis=0, block_size=3)
    b.typed_output(b.op("Mul", b.input("x", values.shape), w), values.shape)
    source = from_proto(b.model())
    read, trace = apply(source, ReadQdq())
    assert trace.skips == []
    assert len(read.nodes(FAKE_QUANTIZE)) == 1
    x = rng.normal(size=values.shape).astype(np.float32)
    for model in (read, apply(read, ToQdq())[0]):
        assert bit_equal(run(model, x), run(source, x))


@pytest.mark.parametrize("axis", [0, 1, -3])
def test_scales_with_fewer_axes_than_the_codes_run_along_the_stated_one(axis: int) -> None:
    codes = np.arange(-24, 24, dtype=np.int8).reshape(2, 3, 4, 2)
    count = codes.shape[axis]
    scale = np.linspace(0.1, 0.7, count, dtype=np.float32)
    read, _ = apply(stored(codes, scale.reshape(count, 1, 1), None, axis=axis), ReadQdq())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.axis, params.block, params.scale.shape) == (axis % 4, 0, (count,))
    along = np.moveaxis(np.moveaxis(codes.astype(np.float32), axis, -1) * scale, -1, axis)
    assert bit_equal(run(read, np.ones(codes.shape, np.float32)), [along])


@pytest.mark.parametrize(("shape", "axis"), [((3, 3), 0), ((2, 2), 0), ((3, 1, 3), 1)])
def test_scales_that_fit_in_no_way_or_in_several_are_refused(
    shape: tuple[int, ...], axis: int
) -> None:
    codes = np.zeros((3, 3, 3), np.int8)
    with pytest.raises(QParamsError, match="without block_size do not match"):
        apply(stored(codes, np.ones(shape, np.float32), None, axis=axis), ReadQdq())
