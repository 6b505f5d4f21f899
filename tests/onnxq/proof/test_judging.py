"""Outputs first, kernels only where they do not tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import VerifyError
from onnxq.proof import judging
from onnxq.proof.difference import Tolerance
from onnxq.proof.judging import fault, judged
from onnxq.proof.trusted import Running, Trusted
from tests.models.build import parse, quantize

X = [{"x": np.linspace(-2, 2, 8, dtype=np.float32)[None]}]

NOTHING = Tolerance(max_steps=0, max_moved=0, max_unexplained=1e-3)


def scaled(factor: float) -> Any:
    text = f"g (float[1,8] x) => (float[1,8] y) <float f = {{{factor}}}> {{ y = Mul(x, f) }}"
    return quantize(quantize(parse(text), "x"), "y")


def test_outputs_that_agree_need_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "kernels", lambda *_: pytest.fail("not needed"))
    report = judged(Trusted(scaled(0.5), X), Running(scaled(0.5)), Tolerance())
    assert report.passed
    assert not report.drifts
    assert fault(report) is None


def test_a_wrong_kernel_is_told_with_the_next_step() -> None:
    report = judged(Trusted(scaled(0.5), X), Running(scaled(0.75)), Tolerance())
    assert not report.passed
    assert [k.passed for k in report.kernels] == [True, False]
    assert report.furthest is report.wrong
    found = fault(report)
    assert found is not None
    assert "Mul" in found[0]
    assert "compare weights, bias, scales and zero points of Mul" in found[1]
    assert "1 of 2 kernels are wrong" in report.notes[-1]


@pytest.mark.parametrize(("bias", "leads"), [(0.04, True), (0.4, False)])
def test_a_bias_that_only_the_file_rounds_leads_to_the_pass_for_it(
    bias: float, leads: bool
) -> None:
    """Not so a bias that is further off than rounding makes it."""

    def layer(value: float) -> Any:
        text = f"""g (float[64,8] x) => (float[64,1] y) <float[8,1] w = {{1,1,1,1,1,1,1,1}},
            float[1] b = {{{value}}}> {{ y = Gemm(x, w, b) }}"""
        return quantize(quantize(parse(text), "x"), "y", scale=np.float32(0.2))

    x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    report = judged(Trusted(layer(0.07), [{"x": x}]), Running(layer(0.07 + bias)), NOTHING)
    found = fault(report)
    assert found is not None
    assert ("put RoundBias() after QuantizeBias()" in found[1]) == leads


def test_kernels_that_cannot_be_compared_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise VerifyError("onnxruntime refuses the parts", fix="none")

    monkeypatch.setattr(judging, "kernels", refuse)
    report = judged(Trusted(scaled(0.5), X), Running(scaled(0.75)), Tolerance())
    assert not report.passed
    assert report.notes[-1].endswith("one by one: onnxruntime refuses the parts")
