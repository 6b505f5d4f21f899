"""What onnxruntime refuses, runs in float, or quantizes by itself."""

import numpy as np
import pytest

from onnxq.errors import OnnxqError
from onnxq.runtime import shipped
from tests.lint_cases import INT8, UINT8, conv_net, found
from tests.zoo_build import Build


def test_a_float_layer_is_named_with_reason_and_fix() -> None:
    (finding,) = found(conv_net(relu_zero=128), "runs-in-float")
    assert finding.severity == "warning"
    assert "(Conv)" in finding.where
    assert "its Relu stays" in finding.message
    assert "lowest code" in finding.fix


def test_operators_that_never_fuse_are_only_mentioned() -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4]), 0.1, 128, UINT8)
    proto = b.model(b.qdq(b.op("Tanh", x), 0.1, 128, UINT8))
    (finding,) = found(proto, "runs-in-float")
    assert finding.severity == "info"
    assert "no integer kernel for Tanh" in finding.message


def test_fused_layers_are_not_mentioned() -> None:
    assert found(conv_net(), "runs-in-float") == []


def test_what_onnxruntime_refuses_is_an_error() -> None:
    b = Build(21)
    x = b.qdq(b.input("x", [1, 4, 6]), 0.1, 0, INT8)
    proto = b.model(b.op("Neg", b.op("Transpose", x, perm=[0, 2, 1])))
    (finding,) = found(proto, "onnxruntime-refuses")
    assert finding.severity == "error"
    assert "(Transpose)" in finding.where
    with pytest.raises(OnnxqError):
        shipped(proto)


def test_what_fails_only_when_it_runs_is_an_error() -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4, 6, 6]), np.full(4, 0.1), 128, UINT8, axis=1)
    weight = b.stored(b.weight_values(4, 4, 3, 3), 0.01)
    proto = b.model(b.qdq(b.op("Conv", x, weight), 0.1, 128, UINT8))
    (finding,) = found(proto, "onnxruntime-refuses")
    assert "one scale per channel to QLinearConv" in finding.message
    with pytest.raises(OnnxqError):
        shipped(proto).run({"x": np.zeros((1, 4, 6, 6), np.float32)})


def test_a_float_weight_that_onnxruntime_rounds_is_told() -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4, 6, 6]), 0.1, 128, UINT8)
    y = b.op("Conv", x, b.init(b.weight_values(4, 4, 3, 3)))
    (finding,) = found(b.model(b.qdq(y, 0.1, 128, UINT8)), "weight-requantized")
    assert finding.severity == "warning"
    assert "rounds the weight to int8 by itself" in finding.message
