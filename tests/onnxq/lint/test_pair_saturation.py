"""Layers that AVX2 kernels compute wrongly."""

import pytest

from tests.models.lint_cases import conv_net, found


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_unsafe_layers_are_named_with_the_fix(backend: str) -> None:
    (finding,) = found(conv_net(weight_codes=127), "pair-saturation", backend)
    assert finding.severity == "warning"
    assert "(Conv)" in finding.where
    assert f"0..{2 * 255 * 127}" in finding.message
    assert "7 bits" in finding.fix
    assert "x64quantprecision" in finding.fix


def test_a_safe_model_is_said_to_be_safe() -> None:
    (finding,) = found(conv_net(weight_codes=63), "pair-saturation")
    assert finding.severity == "info"
    assert "safe on AVX2" in finding.message


def test_targets_with_other_kernels_are_not_concerned() -> None:
    assert found(conv_net(weight_codes=127), "pair-saturation", "tensorrt") == []
