"""Layers that QNN's HTP refuses."""

from __future__ import annotations

from onnx import TensorProto

from tests.models.lint_cases import conv_net, found


def test_a_relu_that_cannot_be_folded_is_an_error() -> None:
    (finding,) = found(conv_net(relu_zero=3), "qnn-node-units", "qnn")
    assert finding.severity == "error"
    assert "features" in finding.where or "Conv" in finding.where
    assert "cannot be folded" in finding.message
    assert "start at 0" in finding.fix


def test_an_output_without_a_quantizer_is_an_error() -> None:
    (finding,) = found(conv_net(out=False), "qnn-node-units", "qnn")
    assert "is not quantized" in finding.message


def test_a_foldable_relu_is_fine() -> None:
    assert found(conv_net(), "qnn-node-units", "qnn") == []


def test_signed_codes_with_zero_point_zero_are_found() -> None:
    (finding,) = found(conv_net(kind=TensorProto.INT8), "qnn-node-units", "qnn")
    assert "cannot be folded" in finding.message
