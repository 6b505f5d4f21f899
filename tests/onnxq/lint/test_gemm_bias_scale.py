"""Gemm biases that onnxruntime adds with the wrong weight."""

import pytest

from tests.models.lint_cases import found, gemm_net


@pytest.mark.parametrize("ratio", [2.0, 1.01, 0.5])
def test_a_wrong_scale_is_an_error(ratio: float) -> None:
    (finding,) = found(gemm_net(ratio), "gemm-bias-scale")
    assert finding.severity == "error"
    assert f"{ratio:.4g} times" in finding.message


def test_the_right_scale_is_none() -> None:
    assert found(gemm_net(1.0), "gemm-bias-scale") == []
