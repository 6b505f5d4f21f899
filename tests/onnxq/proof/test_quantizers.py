"""The quantizers of activations in canonical and QDQ graphs."""

from __future__ import annotations

import numpy as np

import onnxq
from onnxq.graph import Model
from onnxq.pipeline import Pipeline
from onnxq.proof.quantizers import quantizers
from onnxq.running.sessions import open_model
from passes.to_qdq import ToQdq
from tests.models.build import parse, quantize, weight


def network() -> Model:
    model = parse(
        """g (float[1,4] x) => (float[1,4] y) <float[4,4] w = {
            1,2,3,4, 5,6,7,8, 1,2,3,4, 5,6,7,8}> { m = MatMul(x, w) y = Relu(m) }"""
    )
    quantize(model, "x", qtype="uint8", scale=np.float32(0.5), zero_point=128)
    quantize(model, "y", qtype="uint8", scale=np.float32(0.25))
    return weight(model, "w", scale=np.float32(0.1))


def test_those_of_weights_are_left_out_and_kernels_are_named() -> None:
    canonical = quantizers(open_model(network()))
    file = onnxq.convert(network(), "onnxruntime", verify=False).model
    written = quantizers(open_model(file))
    for found in (canonical, written):
        assert [each.op for each in found] == ["", "MatMul"]
        assert [float(each.step.scale) for each in found] == [0.5, 0.25]
        ends = [tuple(map(float, each.ends)) for each in found]
        assert ends == [(-64.0, 63.5), (0.0, 63.75)]
    shared = [set(a.values) & set(b.values) for a, b in zip(canonical, written, strict=True)]
    assert all(shared), "values keep their names"


def test_codes_and_what_is_rounded_to_them_are_in_steps() -> None:
    first, _ = quantizers(open_model(network()))
    values = np.array([0.0, 0.6, -64.0, 1000.0], np.float32)
    assert np.allclose(first.before(values), [128, 129.2, 0, 255])
    assert first.codes(np.array([3, 4], np.uint8)).tolist() == [3, 4]
    assert first.codes(np.array([0.5], np.float32)).tolist() == [129]


def test_codes_of_a_narrower_range_are_clamped_between_quantize_and_dequantize() -> None:
    model = parse("g (float[1,4] x) => (float[1,4] z) { y = Relu(x) z = Neg(y) }")
    quantize(model, "x", qtype="uint8", scale=np.float32(0.5), zero_point=128)
    quantize(model, "y", qtype="uint8", scale=np.float32(0.25), lo=0, hi=130)
    file = Pipeline(ToQdq()).run(model).model
    assert [n.op for n in file.nodes("Clip")] == ["Clip"]
    for graph in (model, file):
        _, narrow = quantizers(open_model(graph))
        assert (narrow.op, narrow.lo, narrow.hi, narrow.step.bits) == ("Relu", 0, 130, 8)
        assert tuple(map(float, narrow.ends)) == (0.0, 32.5)
    assert narrow.made == file.nodes("Clip")[0].outputs[0].name, "its codes are those clamped"
