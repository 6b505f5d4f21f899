"""QONNX's operators become the canonical op: against their definition, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.dialects import qonnx
from onnxq.errors import QParamsError
from onnxq.graph import Model, from_proto
from onnxq.quant.qparams import Role
from onnxq.running import sessions
from passes.read_qonnx import ReadQonnx
from passes.to_qdq import ToQdq
from tests.checks.dialect_round_trip import FIXTURES, first_output, fixture, fixture_inputs
from tests.models.build import apply, bit_equal, ops, reasons, run
from tests.models.dialect_functions import runnable
from tests.models.zoo import ZOO, inputs


def equal(left: Iterable[np.ndarray], right: Iterable[np.ndarray]) -> bool:
    """Whether all values agree exactly; QONNX rounds in float, where -0 is not written as 0."""
    return all(map(np.array_equal, left, right))


RANDOM = np.random.default_rng(0)
X = RANDOM.normal(0, 3, (2, 4, 5)).astype(np.float32)
W = RANDOM.normal(0, 0.3, (4, 5)).astype(np.float32)


def single(
    op: str,
    *parameters: object,
    weight: np.ndarray | None = None,
    domain: str = qonnx.DOMAIN,
    **attrs: object,
) -> Model:
    """One operator on the input x of shape [2,4,5], or on a constant `weight` added to x."""
    constants = [numpy_helper.from_array(np.asarray(p, np.float32), f"p{i}")
                 for i, p in enumerate(parameters)]  # fmt: skip
    names = [c.name for c in constants]
    out = "y" if weight is None else "w.q"
    first = "x" if weight is None else "w"
    nodes = [helper.make_node(op, [first, *names], [out], name="quantizer", domain=domain, **attrs)]
    if weight is not None:
        constants.append(numpy_helper.from_array(weight, "w"))
        nodes.append(helper.make_node("Add", ["x", "w.q"], ["y"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", 1, X.shape)], [info("y", 1, X.shape)], initializer=constants
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return from_proto(helper.make_model(graph, opset_imports=imports, ir_version=8))


@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("narrow", [0, 1])
@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8, 11, 16])
def test_activation(bits: int, signed: int, narrow: int) -> None:
    model = single("Quant", 6 / 2**bits, 0, bits, signed=signed, narrow=narrow)
    read, trace = apply(model, ReadQonnx())
    assert ops(read) == ["FakeQuantize"]
    assert trace.notes == []
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.lo, params.hi) == qonnx.quant_range(bits, bool(signed), bool(narrow))
    assert params.qtype.signed == bool(signed)
    assert params.tensor == "x"
    assert equal(run(read, X), run(runnable(model), X))
    assert qonnx.DOMAIN not in read.opsets


@pytest.mark.parametrize("domain", qonnx.DOMAINS)
@pytest.mark.parametrize("op", ["Quant", "IntQuant"])
def test_every_spelling(domain: str, op: str) -> None:
    model = single(op, 0.1, 0, 8, domain=domain, rounding_mode="round")
    read, _ = apply(model, ReadQonnx())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.lo, params.hi) == (-128, 127), "signed and not narrow unless it says so"


@pytest.mark.parametrize(
    ("shape", "axis"), [((4, 1), 1), ((1, 4, 1), 1), ((2, 1, 1), 0), ((5,), 2)]
)
def test_scale_per_channel(shape: tuple[int, ...], axis: int) -> None:
    scale = np.linspace(0.1, 0.3, max(shape)).reshape(shape)
    model = single("Quant", scale, 0, 5, signed=1, narrow=1)
    read, _ = apply(model, ReadQonnx())
    assert params_of(read.nodes(FAKE_QUANTIZE)[0]).axis == axis
    assert equal(run(read, X), run(runnable(model), X))


def test_zero_point_is_read_with_a_note_about_halves() -> None:
    model = single("Quant", 0.1, 37, 8, signed=0, narrow=0)
    read, trace = apply(model, ReadQonnx())
    assert int(params_of(read.nodes(FAKE_QUANTIZE)[0]).zero_point) == 37
    assert any("'x'" in note and "half" in note for note in trace.notes)
    assert equal(run(read, X), run(runnable(model), X))


@pytest.mark.parametrize("mode", sorted(qonnx.ROUNDING))
def test_constant_with_any_rounding_mode(mode: str) -> None:
    scale = np.linspace(0.05, 0.1, 4, dtype=np.float32).reshape(4, 1)
    model = single("Quant", scale, 0, 4, weight=W, signed=1, narrow=0, rounding_mode=mode)
    read, trace = apply(model, ReadQonnx())
    codes = [qonnx.codes(W, scale, np.float32(0), -8, 7, m) for m in (mode, "ROUND")]
    want = X + qonnx.quant(W, scale, np.float32(0), -8, 7, mode)
    assert equal(run(read, X), [want])
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.tensor, params.axis, params.role) == ("w", 0, Role.WEIGHT)
    assert (f"{mode} applied" in trace.rewrites[0]) != np.array_equal(*codes)


def test_constant_with_an_odd_zero_point_has_the_codes_of_quant() -> None:
    """0.5 + 1 rounds to 2 in QONNX, 0.5 rounds to 0 in ONNX: the constant is put on the grid."""
    weight = np.full((4, 5), 0.5, np.float32)
    read, trace = apply(single("Quant", 1, 1, 4, weight=weight, signed=1), ReadQonnx())
    assert equal(run(read, X), [X + np.float32(1)])
    assert "applied to the constant" in trace.rewrites[0]


def test_shared_constant_keeps_its_values_for_its_other_reader() -> None:
    proto = single("Quant", 0.1, 0, 4, weight=W, signed=1, rounding_mode="FLOOR").to_proto()
    proto.graph.node.append(helper.make_node("Identity", ["w"], ["other"]))
    proto.graph.output.append(helper.make_tensor_value_info("other", 1, W.shape))
    read, _ = apply(from_proto(proto), ReadQonnx())
    y, other = run(read, X)
    np.testing.assert_array_equal(other, W)
    np.testing.assert_array_equal(
        y, X + qonnx.quant(W, np.float32(0.1), np.float32(0), -8, 7, "FLOOR")
    )


@pytest.mark.parametrize(
    ("parameters", "attrs", "why"),
    [
        ((0.1, 0, 8), {"rounding_mode": "FLOOR"}, "FLOOR at run time"),
        ((0.1, 0, 8), {"rounding_mode": "SOMEHOW"}, "SOMEHOW"),
        ((0.1, 0.5, 8), {}, "zero point 0.5 is not an integer"),
        ((0.1, 0, 20), {}, "more than 16 bits"),
        ((0.1, 0, 3.5), {}, "bit width 3.5"),
        ((0.1, 0, 1), {"signed": 0, "narrow": 1}, "only one code"),
        ((0.1, 0, 1), {"signed": 1}, "two values -s, s"),
        ((0.1, 0, [8, 4, 2, 8, 8]), {}, "bit width per channel"),
        ((np.ones((4, 5)), 0, 8), {}, "one axis"),
    ],
)
def test_what_cannot_be_read_stays_with_the_reason(
    parameters: tuple[object, ...], attrs: dict[str, object], why: str
) -> None:
    read, trace = apply(single("Quant", *parameters, **attrs), ReadQonnx())
    assert ops(read) == ["Quant"]
    assert why in reasons(trace)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ((float("nan"), 0, 8), "nan"),
        ((0.0, 0, 8), "0.0"),
        ((-0.5, 0, 8), "scale -0.5 is not a positive"),
        ((0.1, 300, 8), r"zero point 300 is outside -128\.\.127"),
        ((0.1, float("inf"), 8), "inf"),
        ((np.full((3, 1), 0.1), 0, 8), "3 scales for 4"),
        ((0.1, 0), "no bit width"),
    ],
)
def test_broken_parameters_are_an_error_that_names_the_node(
    parameters: tuple[object, ...], word: str
) -> None:
    with pytest.raises(QParamsError, match=f"'quantizer'.*{word}"):
        apply(single("Quant", *parameters), ReadQonnx())


def test_parameters_computed_at_run_time_stay() -> None:
    proto = single("Quant", 0.1, 0, 8).to_proto()
    del proto.graph.initializer[0]
    proto.graph.input.append(helper.make_tensor_value_info("p0", 1, []))
    _, trace = apply(from_proto(proto), ReadQonnx())
    assert "scale 'p0' is computed at run time" in reasons(trace)


# -- two values -------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "parameters"), [("BipolarQuant", (0.2,)), ("Quant", (0.2, 0, 1))])
def test_two_valued_constant(op: str, parameters: tuple[object, ...]) -> None:
    read, _ = apply(single(op, *parameters, weight=W), ReadQonnx())
    want = X + np.where(W >= 0, np.float32(0.2), np.float32(-0.2))
    assert equal(run(read, X), [want])
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, params.lo, params.hi) == ("int2", -1, 1)


def test_two_valued_activation_and_small_floats_stay() -> None:
    _, trace = apply(single("BipolarQuant", 0.2), ReadQonnx())
    assert "no code for 0" in reasons(trace)
    _, trace = apply(single("FloatQuant", 0.2, 4, 3, 7), ReadQonnx())
    assert "small floats" in reasons(trace)


# -- biases -----------------------------------------------------------------------------------


def test_bias_of_32_bits_becomes_a_row() -> None:
    bias = W[0]
    model = single("Quant", [1e-3], 0, 32, weight=bias, signed=1, narrow=0)
    read, _ = apply(model, ReadQonnx())
    assert not read.nodes(FAKE_QUANTIZE)
    (row,) = read.qparams.of(Role.BIAS)
    assert (row.tensor, row.qtype.name, row.axis) == ("w", "int32", None)
    assert equal(run(read, X), run(runnable(model), X))
    kept = from_proto(read.to_proto())
    assert [r.to_json() for r in kept.qparams] == [row.to_json()]


def test_bias_on_its_grid_keeps_its_constant() -> None:
    bias = np.float32([1, 2, 3, 4, 5]) * np.float32(0.5)
    read, _ = apply(single("Quant", 0.5, 0, 24, weight=bias), ReadQonnx())
    (row,) = read.qparams.of(Role.BIAS)
    assert (row.tensor, row.lo, row.hi) == ("w", -(2**23), 2**23 - 1)
    assert equal(run(read, X), [X + bias])


def test_bias_without_sign_stays() -> None:
    _, trace = apply(single("Quant", 0.5, 0, 32, weight=W[0], signed=0), ReadQonnx())
    assert "32 bits with sign" in reasons(trace)


# -- Trunc ------------------------------------------------------------------------------------


def behind_quant(*trunc: object, scale: float, **attrs: object) -> onnx.ModelProto:
    """x -> Quant of 8 bits -> Trunc."""
    proto = single("Quant", scale, 0, 8, signed=1).to_proto()
    proto.graph.node[0].output[0] = "q"
    extra = [numpy_helper.from_array(np.asarray(v, np.float32), f"t{i}")
             for i, v in enumerate(trunc)]  # fmt: skip
    proto.graph.initializer.extend(extra)
    names = ["q", *(t.name for t in extra)]
    proto.graph.node.append(helper.make_node("Trunc", names, ["y"], domain=qonnx.DOMAIN, **attrs))
    return proto


def trunc_by_hand(x: np.ndarray, scale: float, made: float, lo: int, hi: int) -> np.ndarray:
    codes = np.rint(np.clip(np.rint(x / np.float32(scale)), -128, 127) * scale / made)
    return (np.clip(codes, lo, hi) * made).astype(np.float32)


@pytest.mark.parametrize("spare", [(), (0,)])
def test_trunc_with_rounding_behind_a_quantizer(spare: tuple[int, ...]) -> None:
    proto = behind_quant(0.125, 0, 8, 0.5, *spare, 6, scale=0.125, signed=1, rounding_mode="ROUND")
    read, trace = apply(from_proto(proto), ReadQonnx())
    assert ops(read) == ["FakeQuantize", "FakeQuantize"]
    assert "all 256 possible inputs" in trace.rewrites[-1]
    assert equal(run(read, X), [trunc_by_hand(X, 0.125, 0.5, -32, 31)])


def test_trunc_that_drops_nothing_is_a_quantizer() -> None:
    proto = behind_quant(0.1, 0, 8, 0.1, 4, scale=0.1, signed=1, rounding_mode="FLOOR")
    read, _ = apply(from_proto(proto), ReadQonnx())
    assert ops(read) == ["FakeQuantize", "FakeQuantize"]
    first = np.clip(np.rint(X / np.float32(0.1)), -8, 7).astype(np.float32) * np.float32(0.1)
    assert equal(run(read, X), [first])


def test_trunc_that_floors_stays() -> None:
    proto = behind_quant(0.125, 0, 8, 0.5, 6, scale=0.125, rounding_mode="FLOOR")
    read, trace = apply(from_proto(proto), ReadQonnx())
    assert "drops 2 bits with FLOOR" in reasons(trace)
    assert sorted(ops(read)) == ["FakeQuantize", "Trunc"]


def test_trunc_of_what_is_no_grid_stays() -> None:
    _, trace = apply(single("Trunc", 0.125, 0, 8, 6), ReadQonnx())
    assert "come from no quantizer" in reasons(trace)


@pytest.mark.parametrize("mode", ["FLOOR", "ROUND", "CEIL"])
def test_trunc_of_a_constant(mode: str) -> None:
    """Version 1 keeps the scale: values shrink by 4."""
    model = single("Trunc", 0.01, 0, 8, 6, weight=W, rounding_mode=mode)
    read, _ = apply(model, ReadQonnx())
    codes = qonnx.ROUNDING[mode](np.rint(W / np.float32(0.01)) / np.float32(4))
    assert equal(run(read, X), [X + codes * np.float32(0.01)])


# -- whole models -----------------------------------------------------------------------------


def test_zoo_is_bit_equal() -> None:
    proto = ZOO["qonnx_cnn"]()
    read, trace = apply(from_proto(proto), ReadQonnx())
    assert not trace.skips
    assert len(read.qparams.of(Role.BIAS)) == 2
    for seed in range(4):
        feeds = inputs(proto, seed)
        want = sessions.reference(proto).run(feeds)
        assert equal(sessions.reference(read).run(feeds).values(), want.values())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.integers(2, 16),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.25, 0.1, 1e-3, 3.0]),
    st.integers(0, 2**16),
)
def test_random_parameters_are_bit_equal(
    bits: int, signed: bool, narrow: bool, scale: float, seed: int
) -> None:
    x = np.random.default_rng(seed).normal(0, scale * 2 ** (bits - 1), X.shape).astype(np.float32)
    half = np.rint(x[0] / np.float32(scale)) + np.float32(0.5)
    x[0] = half * np.float32(scale)
    model = single("Quant", scale, 0, bits, signed=int(signed), narrow=int(narrow))
    read, _ = apply(model, ReadQonnx())
    assert equal(run(read, x), run(runnable(model), x))


@pytest.mark.skipif(not FIXTURES.exists(), reason="no models of other tools beside the repository")
@pytest.mark.parametrize("network", ["A1", "A2"])
@pytest.mark.parametrize(("kind", "rows"), [("int8", {"A1": 9, "A2": 7}), ("w4a8", {})])
def test_brevitas(network: str, kind: str, rows: dict[str, int]) -> None:
    """Equal to Brevitas; to its QCDQ file where that file itself differs from Brevitas."""
    name = f"{network}/brevitas-qonnx-{kind}"
    read, trace = apply(fixture(name), ReadQonnx())
    assert not trace.skips
    assert len(read.qparams.of(Role.BIAS)) == rows.get(network, 0)
    written, _ = apply(read, ToQdq())
    expected = np.load(FIXTURES / name / "expected.npz")
    for number, x in enumerate(fixture_inputs(name)):
        have = first_output(read, x)
        assert bit_equal([first_output(written, x)], [have])
        if kind == "int8":
            other = first_output(FIXTURES / network / "brevitas-qcdq-int8" / "model.onnx", x)
            assert bit_equal([have], [other])
        if (network, kind) != ("A1", "int8"):
            want = expected[expected.files[0]][number : number + 1]
            np.testing.assert_allclose(have, want, rtol=0, atol=2e-7)
