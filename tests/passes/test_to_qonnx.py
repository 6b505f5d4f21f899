"""Canonical to QONNX: read back the same, and computing the same by QONNX's own definition."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from onnxq.dialects import qonnx
from onnxq.graph import Model, from_proto
from onnxq.graph.constants import array
from onnxq.quant.qparams import Role
from passes.infer_shapes import InferShapes
from passes.quantize_bias import QuantizeBias
from passes.read_qdq import ReadQdq
from passes.read_qonnx import ReadQonnx
from passes.to_qonnx import ToQonnx
from tests.checks.dialect_round_trip import (
    FIXTURES,
    assert_refused_together,
    assert_same_again,
    first_output,
    fixture,
    fixture_inputs,
    refusal,
    round_trip,
    rows_without_source,
    with_unwritable_quantizers,
)
from tests.models.build import apply, ops, parse, quantize, run, weight
from tests.models.canonical import Canonical, canonical_models
from tests.models.dialect_functions import runnable
from tests.models.strategies import qdq_graphs
from tests.models.zoo import QDQ, ZOO

QUANT = f"{qonnx.DOMAIN}::Quant"
X = np.random.default_rng(0).normal(0, 4, (2, 3, 4)).astype(np.float32)


def relu() -> Model:
    return parse("g (float[2,3,4] x) => (float[2,3,4] y) { y = Relu(x) }")


def gemm() -> Model:
    model = parse(
        """g (float[2,3] x) => (float[2,4] y)
        <float[3,4] w = {1,-2,3,-4,5,6,7,-8,9,1,1,1.25}, float[4] b = {0.1,0.2,0.3,0.4}> {
            y = Gemm(x, w, b)
        }"""
    )
    quantize(model, "x", scale=np.float32(0.05))
    return weight(model, "w", scale=np.float32([0.1, 0.2, 0.3, 0.4]), axis=1, lo=-127)


@pytest.mark.parametrize(
    ("kind", "lo", "hi", "bits", "signed", "narrow"),
    [
        ("int8", -128, 127, 8, 1, 0),
        ("int8", -127, 127, 8, 1, 1),
        ("uint8", 0, 255, 8, 0, 0),
        ("uint8", 0, 254, 8, 0, 1),
        ("uint8", 0, 127, 7, 0, 0),
        ("int8", 0, 127, 7, 0, 0),
        ("int8", -64, 63, 7, 1, 0),
        ("int4", -8, 7, 4, 1, 0),
        ("int2", -1, 1, 2, 1, 1),
        ("int16", -32768, 32767, 16, 1, 0),
        ("uint16", 0, 65535, 16, 0, 0),
        ("uint8", 0, 1, 1, 0, 0),
    ],
)
def test_ranges(kind: str, lo: int, hi: int, bits: int, signed: int, narrow: int) -> None:
    model = quantize(relu(), "x", qtype=kind, lo=lo, hi=hi, scale=np.float32(8 / (hi - lo)))
    written = assert_same_again(model, ToQonnx(), ReadQonnx())
    (node,) = written.nodes(QUANT)
    assert [float(array(t)) for t in node.inputs[2:]] == [0, bits]
    assert node.attrs == {"signed": signed, "narrow": narrow, "rounding_mode": "ROUND"}
    assert written.opsets[qonnx.DOMAIN] == 1
    assert node.inputs[0].name == "x"
    np.testing.assert_array_equal(run(runnable(written), X)[0], run(model, X)[0])
    onnx.checker.check_model(written.to_proto())


def test_scale_per_channel_has_the_rank_of_the_tensor() -> None:
    scale = np.float32([0.1, 0.2, 0.3])
    model = quantize(relu(), "x", scale=scale, axis=1, zero_point=np.array([0, 2, 4]))
    written = assert_same_again(model, ToQonnx(), ReadQonnx())
    (node,) = written.nodes(QUANT)
    assert [t.shape for t in node.inputs[1:]] == [(1, 3, 1), (1, 3, 1), ()]


def test_zero_point_of_an_activation_is_noted() -> None:
    _, trace = apply(quantize(relu(), "x", qtype="uint8", zero_point=3), ToQonnx())
    assert any("'x'" in note for note in trace.notes)
    _, trace = apply(quantize(relu(), "x", qtype="uint8", zero_point=0), ToQonnx())
    assert trace.notes == []


def test_constant_whose_code_would_move_is_put_on_the_grid() -> None:
    """1.25 is half way between two codes; with an odd zero point QONNX takes the other one."""
    model = parse(
        """g (float[2,3] x) => (float[2,4] y)
        <float[3,4] w = {1,-2,3,-4,5,6,7,-8,9,1,1,1.25}> { y = MatMul(x, w) }"""
    )
    weight(model, "w", scale=np.float32(0.5), zero_point=3)
    written = assert_same_again(model, ToQonnx(), ReadQonnx())
    x = X[0, :, :3][:2].copy()
    np.testing.assert_array_equal(run(runnable(written), x)[0], run(model, x)[0])


def test_bias_rows() -> None:
    model, _ = apply(gemm(), QuantizeBias())
    written, back = round_trip(model, ToQonnx(), ReadQonnx())
    assert rows_without_source(back) == rows_without_source(model)
    assert written.qparams.rows == []
    assert ops(written).count("Quant") == 3
    (row,) = back.qparams.of(Role.BIAS)
    bits = next(n for n in written.nodes(QUANT) if n.inputs[0].name == row.tensor).inputs[3]
    assert float(array(bits)) == 32
    x = X[0, :2, :3].copy()
    np.testing.assert_array_equal(run(runnable(written), x)[0], run(back, x)[0])
    # Half a step of the accumulator, as in to-qdq.
    assert np.abs(run(back, x)[0] - run(model, x)[0]).max() <= row.scale.max() / 2 + 1e-6
    plain, _ = apply(model, ToQonnx(bias="float"))
    assert ops(plain).count("Quant") == 2
    assert rows_without_source(apply(plain, ReadQonnx())[0]) == rows_without_source(model)


def test_what_has_no_spelling_is_refused_together() -> None:
    model = with_unwritable_quantizers()
    quantize(model, "x", qtype="uint8", lo=0, hi=200)
    assert_refused_together(model, ToQonnx(), "'x'", "0..200")


@pytest.mark.parametrize("name", sorted(QDQ))
def test_zoo_round_trip(name: str) -> None:
    model, _ = apply(from_proto(ZOO[name]()), InferShapes(), ReadQdq())
    refused = refusal(model, ToQonnx())
    if refused:
        why = ("per block", "neither full nor narrow", "float16", "codes are float8")
        assert any(word in refused for word in why), refused
        return
    written, back = round_trip(model, ToQonnx(), ReadQonnx())
    assert rows_without_source(back) == rows_without_source(model)
    assert len(written.nodes(QUANT)) == len(rows_without_source(model))
    assert not back.nodes(QUANT)


EXAMPLES = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@EXAMPLES
@given(canonical_models())
def test_random_canonical_round_trip(case: Canonical) -> None:
    model, _ = apply(case.model, InferShapes())
    refused = refusal(model, ToQonnx())
    if refused:
        assert "0..200" in refused
        return
    assert_same_again(model, ToQonnx(), ReadQonnx())


@EXAMPLES
@given(qdq_graphs())
def test_random_qdq_round_trip(proto: onnx.ModelProto) -> None:
    model, _ = apply(from_proto(proto), InferShapes(), ReadQdq())
    refused = refusal(model, ToQonnx())
    if refused:
        assert "neither full nor narrow" in refused
        return
    _, back = round_trip(model, ToQonnx(), ReadQonnx())
    assert rows_without_source(back) == rows_without_source(model)


@pytest.mark.skipif(not FIXTURES.exists(), reason="no models of other tools beside the repository")
@pytest.mark.parametrize("name", ["A1/brevitas-qonnx-int8", "A2/brevitas-qonnx-w4a8"])
def test_files_of_brevitas_come_back(name: str) -> None:
    model, _ = apply(fixture(name), ReadQonnx())
    written, back = round_trip(model, ToQonnx(), ReadQonnx())
    assert rows_without_source(back) == rows_without_source(model)
    for x in fixture_inputs(name)[:2]:
        want = first_output(model, x)
        np.testing.assert_array_equal(first_output(back, x), want)
        np.testing.assert_array_equal(first_output(runnable(written), x), want)
