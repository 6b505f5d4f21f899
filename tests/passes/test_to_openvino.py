"""Canonical to OpenVINO's FakeQuantize: read back the same, to the bit of the scale."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxq.dialects import openvino
from onnxq.graph import Model, from_proto
from onnxq.graph.constants import array
from onnxq.storage.node_metadata import QUANT_MIN, QUANT_TYPE, SCALE, metadata
from passes.infer_shapes import InferShapes
from passes.quantize_bias import QuantizeBias
from passes.read_openvino import ReadOpenvino
from passes.read_qdq import ReadQdq
from passes.to_openvino import ToOpenvino
from tests.checks.dialect_round_trip import (
    assert_refused_together,
    assert_same_again,
    refusal,
    round_trip,
    rows_without_source,
    with_unwritable_quantizers,
)
from tests.models.build import apply, parse, quantize, run, weight
from tests.models.canonical import Canonical, canonical_models
from tests.models.dialect_functions import runnable
from tests.models.strategies import qdq_graphs
from tests.models.zoo import QDQ, ZOO

X = np.random.default_rng(0).normal(0, 4, (2, 3, 4)).astype(np.float32)


def relu() -> Model:
    return parse("g (float[2,3,4] x) => (float[2,3,4] y) { y = Relu(x) }")


@pytest.mark.parametrize(
    ("kind", "lo", "hi", "zero", "said"),
    [
        ("int8", -128, 127, 0, False),
        ("int8", -127, 127, 0, False),
        ("uint8", 0, 255, 0, False),
        ("uint8", 0, 255, 7, False),
        ("uint8", 0, 255, 128, True),
        ("int8", -128, 127, 3, True),
        ("int8", 0, 127, 0, True),
        ("uint8", 1, 200, 5, True),
        ("int4", -8, 7, 0, False),
        ("uint16", 0, 65535, 40000, False),
        ("int16", -300, 300, 0, False),
    ],
)
def test_grids(kind: str, lo: int, hi: int, zero: int, said: bool) -> None:
    scale = np.float32(8 / (hi - lo))
    model = quantize(relu(), "x", qtype=kind, lo=lo, hi=hi, scale=scale, zero_point=zero)
    written = assert_same_again(model, ToOpenvino(), ReadOpenvino())
    (node,) = written.nodes(openvino.FAKE_QUANTIZE)
    assert node.attrs == {"levels": hi - lo + 1}
    low, high = (float(array(t)) for t in node.inputs[1:3])
    assert (low, high) == (np.float32((lo - zero) * scale), np.float32((hi - zero) * scale))
    assert [t.name for t in node.inputs[3:]] == [t.name for t in node.inputs[1:3]]
    assert (QUANT_TYPE in metadata(node)) == (QUANT_MIN in metadata(node)) == said
    assert written.opsets[openvino.DOMAIN] == 1
    (have,), (want,) = run(runnable(written), X), run(model, X)
    assert np.abs(have - want).max() <= 0.02 * scale  # the ends are float32 numbers
    onnx.checker.check_model(written.to_proto())


def test_bounds_per_channel_have_the_rank_of_the_tensor() -> None:
    model = quantize(relu(), "x", scale=np.float32([0.1, 0.2, 0.3]), axis=1)
    written = assert_same_again(model, ToOpenvino(), ReadOpenvino())
    (node,) = written.nodes(openvino.FAKE_QUANTIZE)
    assert [t.shape for t in node.inputs[1:]] == [(1, 3, 1)] * 4


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.floats(2**-20, 2**10, width=32),
    st.sampled_from([(-127, 127, 0), (0, 255, 0), (0, 3, 0), (0, 200, 100), (-8, 7, 0)]),
)
def test_every_scale_comes_back_to_the_bit(scale: float, codes: tuple[int, int, int]) -> None:
    lo, hi, zero = codes
    kind = "int8" if lo < 0 else "uint8"
    grid = {"qtype": kind, "lo": lo, "hi": hi, "zero_point": zero, "scale": np.float32(scale)}
    model = quantize(relu(), "x", **grid)
    _, back = round_trip(model, ToOpenvino(), ReadOpenvino())
    assert rows_without_source(back) == rows_without_source(model)


def test_metadata_tells_a_scale_that_the_ends_do_not() -> None:
    """Two neighbouring scales have the same 3 * s in float32."""
    scale = np.float32(1.5)
    pairs = [scale, np.nextafter(scale, np.float32(2))]
    written = [
        apply(quantize(relu(), "x", qtype="uint8", hi=3, scale=s), ToOpenvino())[0] for s in pairs
    ]
    nodes = [model.nodes(openvino.FAKE_QUANTIZE)[0] for model in written]
    ends = [float(array(node.inputs[2])) for node in nodes]
    if ends[0] == ends[1]:
        assert any(SCALE in metadata(node) for node in nodes)
    back = [
        rows_without_source(apply(from_proto(m.to_proto()), ReadOpenvino())[0]) for m in written
    ]
    assert [row["scale"] for rows in back for row in rows] == [float(s) for s in pairs]


def test_biases_stay_float_and_their_rows_stay() -> None:
    model = parse(
        """g (float[2,3] x) => (float[2,2] y)
        <float[3,2] w = {1,-2,3,-4,5,6}, float[2] b = {0.1,0.2}> { y = Gemm(x, w, b) }"""
    )
    quantize(model, "x", scale=np.float32(0.05))
    weight(model, "w", scale=np.float32([0.1, 0.2]), axis=1, lo=-127)
    model, _ = apply(model, QuantizeBias())
    written = assert_same_again(model, ToOpenvino(), ReadOpenvino())
    assert len(written.qparams.rows) == 1


def test_what_has_no_spelling_is_refused_together() -> None:
    model = with_unwritable_quantizers()
    quantize(model, "x", scale=np.float32(3e36))
    assert_refused_together(model, ToOpenvino(), "'x'", "ends of its range")


@pytest.mark.parametrize("name", sorted(QDQ))
def test_zoo_round_trip(name: str) -> None:
    model, _ = apply(from_proto(ZOO[name]()), InferShapes(), ReadQdq())
    refused = refusal(model, ToOpenvino())
    if refused:
        why = ("per block", "float16", "codes are float8")
        assert any(word in refused for word in why), refused
        return
    _, back = round_trip(model, ToOpenvino(), ReadOpenvino())
    assert rows_without_source(back) == rows_without_source(model)
    assert not back.nodes(openvino.FAKE_QUANTIZE)


EXAMPLES = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@EXAMPLES
@given(canonical_models())
def test_random_canonical_round_trip(case: Canonical) -> None:
    model, _ = apply(case.model, InferShapes())
    assert_same_again(model, ToOpenvino(), ReadOpenvino())


@EXAMPLES
@given(qdq_graphs())
def test_random_qdq_round_trip(proto: onnx.ModelProto) -> None:
    model, _ = apply(from_proto(proto), InferShapes(), ReadQdq())
    assert_same_again(model, ToOpenvino(), ReadOpenvino())
