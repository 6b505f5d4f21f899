"""Layers that AVX2 kernels compute wrongly."""

from dataclasses import replace

import pytest

from onnxq.lint.pair_saturation import is_about
from onnxq.running.cpu import Cpu
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


def test_it_concerns_cpus_without_vnni_and_the_variant_for_them() -> None:
    (finding,) = found(conv_net(weight_codes=127), "pair-saturation")
    old, new = Cpu("", "x86_64", frozenset({"avx2"})), Cpu("", "x86_64", frozenset({"avx_vnni"}))
    assert is_about(finding, old, None)
    assert is_about(finding, Cpu("", "x86_64", None), None)  # unknown: better to say it
    assert not is_about(finding, new, "qoperator")
    assert is_about(finding, new, "avx2")
    assert is_about(replace(finding, rule="accumulator"), new, None)
