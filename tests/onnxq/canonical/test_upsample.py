"""Upsample as a function: valid, and what the operator of opset 9 computes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxq.canonical.upsample import UPSAMPLE
from onnxq.edit import constant, new_node, remove
from onnxq.graph import Model, from_proto
from onnxq.running import sessions
from tests.models.build import parse


def with_function(mode: str, factor: int, opset: int) -> Model:
    model = parse("g (float[1,2,3,4] x) => (float[A,B,C,D] y) { y = Identity(x) }", opset=opset)
    (node,) = model.nodes("Identity")
    x, y = node.inputs[0], node.outputs[0]
    remove(node, model)
    scales = constant(model, "scales", np.float32([1, 1, factor, factor]))
    new_node(model, UPSAMPLE, [x, scales], [y], name="up", attrs={"mode": mode})
    return model


def old_operator(mode: str, factor: int) -> onnx.ModelProto:
    text = f"""<ir_version: 4, opset_import: ["" : 9]>
    g (float[1,2,3,4] x) => (float[A,B,C,D] y) <float[4] s = {{1, 1, {factor}, {factor}}}>
    {{ y = Upsample<mode="{mode}">(x, s) }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("factor", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_it_computes_what_opset_9_did(mode: str, factor: int, opset: int) -> None:
    model = with_function(mode, factor, opset)
    onnx.checker.check_model(model.to_proto(), full_check=True)
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4)).astype(np.float32)
    (got,) = sessions.reference(model).run({"x": x}).values()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    old = ort.InferenceSession(
        old_operator(mode, factor).SerializeToString(), options, ["CPUExecutionProvider"]
    )
    (want,) = old.run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    if mode == "nearest":
        np.testing.assert_array_equal(got, x.repeat(factor, 2).repeat(factor, 3))


def test_the_function_comes_and_goes_with_its_calls() -> None:
    proto = with_function("nearest", 2, 17).to_proto()
    assert [f.name for f in proto.functions] == ["Upsample"]
    again = from_proto(proto)
    assert again.functions == []
    assert again.to_proto().SerializeToString() == proto.SerializeToString()
