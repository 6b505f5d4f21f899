"""The tensorrt backend: symmetric int8 QDQ, float biases, and the legacy files."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.errors import BackendError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.quant.qparams import Role
from onnxq.workflows import demo
from onnxq.workflows.convert import Conversion
from tests.models.build import parse, quantize, weight
from tests.onnxq.backends.off_axis import off_axis_product


@pytest.fixture(scope="module")
def done() -> Conversion:
    return onnxq.convert(demo.quantize(demo.build()), "tensorrt")


def test_proven(done: Conversion) -> None:
    assert [p.what for p in done.proofs] == [
        "qdq.onnx (reference)",
        "clip_ranges.json (read back)",
        "calibration.cache (read back)",
    ]
    assert done.proven


def test_zero_points_are_zero_and_int8(done: Conversion) -> None:
    for node in done.model.nodes("QuantizeLinear", "DequantizeLinear"):
        zero = array(node.inputs[2])
        assert zero.dtype == np.int8
        assert not zero.any()


def test_biases_are_float_and_batch_norm_is_folded(done: Conversion) -> None:
    for node in done.model.nodes("Conv", "Gemm"):
        assert array(node.inputs[2]).dtype == np.float32
    assert not done.model.nodes("BatchNormalization")


def test_ranges_are_127_steps(done: Conversion) -> None:
    texts = {a.suffix: a.content for a in done.artifacts}
    ranges = json.loads(texts["_clip_ranges.json"])["tensorrt"]["blob_range"]
    rows = {r.tensor: float(r.scale) for r in done.table.of(Role.ACTIVATION)}
    assert ranges == {name: 127.0 * scale for name, scale in rows.items()}
    first, *lines = texts["_calibration.cache"].splitlines()
    assert first == "TRT-8601-EntropyCalibration2"
    assert {
        line.rpartition(": ")[0]: struct.unpack(">f", bytes.fromhex(line[-8:]))[0] for line in lines
    } == rows


def test_the_clean_model_has_every_tensor_of_the_ranges(done: Conversion) -> None:
    clean = next(a.content for a in done.artifacts if a.suffix == "_deploy_model.onnx")
    assert isinstance(clean, Model)
    assert not clean.nodes("QuantizeLinear", "onnxq::FakeQuantize")
    names = {t.name for n in clean.nodes() for t in (*n.inputs, *n.outputs)}
    assert {r.tensor for r in done.table.of(Role.ACTIVATION)} <= names


def test_training_uses_the_clamp_of_the_target_for_activations() -> None:
    backend = find_backend("tensorrt")
    assert backend.scheme.activation.range == (-128, 127)
    assert backend.scheme.weight.range == (-127, 127)
    assert "Conv" in backend.placement.accumulated


def test_scales_along_a_summed_axis_are_not_written() -> None:
    """TensorRT refuses them: scales of weights run along output channels."""
    done = onnxq.convert(off_axis_product(), "tensorrt")
    assert done.proven
    assert done.change is None
    assert done.table.of(Role.WEIGHT) == []


def test_float8_is_written_as_qdq_alone() -> None:
    model = parse(
        """g (float[1,4] x) => (float[1,2] y)
        <float[4,2] w = {1.27, -0.3, 0.7, 2.1, 0.1, 0.9, 0, 1}> { y = MatMul(x, w) }"""
    )
    quantize(model, "x", qtype="float8e4m3fn", scale=np.float32(0.01))
    weight(model, "w", qtype="float8e4m3fn", scale=np.float32([0.01, 0.005]), axis=1)
    done = onnxq.convert(model, "tensorrt")
    assert done.proven
    assert done.change is None
    assert [a.suffix for a in done.artifacts] == ["_qdq.onnx"]
    assert {str(row.qtype) for row in done.table} == {"float8e4m3fn"}
    other = quantize(
        parse("g (float[4] x) => (float[4] y) { y = Neg(x) }"), "x", qtype="float8e5m2"
    )
    with pytest.raises(BackendError, match="type float8e5m2"):
        onnxq.convert(other, "tensorrt")
