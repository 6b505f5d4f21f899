"""Models that tracers find hard: each is prepared, in training and in evaluation."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from tests.torch_bridge.capture.hard_models import ROOTS  # noqa: E402
from torch_bridge.capture.flat_call import leaves  # noqa: E402
from torch_bridge.capture.report import Report  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import calibrating, quantizing  # noqa: E402

UNTRACED = {"branch on a value"}
"""Roots without a graph: the code depends on values, which no tracer has."""

"""An LSTM is one function: it stays float, and is reported."""


def prepared(name: str, training: bool) -> tuple[torch.nn.Module, torch.nn.Module, tuple]:
    make, inputs = ROOTS[name]
    model = make().train(training)
    args = inputs()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quantized = prepare(model, "tensorrt", args)
    problems = list(quantized.onnxq_report.problems())
    assert len(caught) == bool(problems)
    assert all(problem in str(caught[0].message) for problem in problems)
    return model, quantized, args


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", ROOTS)
def test_prepared_computes_the_same_until_it_is_told_to_quantize(name: str, training: bool) -> None:
    model, quantized, args = prepared(name, training)
    assert quantized.training is training
    report: Report = quantized.onnxq_report
    assert report.traced is (name not in UNTRACED)
    assert report.rows
    with torch.no_grad():
        expected = [t for _, t in leaves(model.eval()(*args))]
        got = [t for _, t in leaves(quantized.eval()(*args))]
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ROOTS)
def test_prepared_calibrates_quantizes_and_trains(name: str) -> None:
    _, quantized, args = prepared(name, training=True)
    with calibrating(quantized):
        quantized(*args)
    with quantizing(quantized):
        _, result = next(leaves(quantized(*args)))
        result.square().sum().backward()
        reached = [n for n, p in quantized.named_parameters() if p.grad is not None]
        assert any(n.endswith("weight") for n in reached)
        assert any("fake_quant" in n for n in reached), "no scale learns"


def test_the_module_that_failed_is_named_with_the_cost() -> None:
    _, quantized, _ = prepared("detection head", training=False)
    (leaf,) = quantized.onnxq_report.leaves
    assert leaf.path == "head"
    assert "TraceError" in leaf.reason
    assert "stay float" in leaf.cost
    # Its convolution is quantized all the same, with its input.
    assert {r.module for r in quantized.onnxq_report.rows} >= {
        "head.conv.weight_fake_quant",
        "head.conv.input_fake_quant",
    }


def test_functional_dropout_follows_the_mode() -> None:
    _, quantized, args = prepared("functional dropout", training=False)
    quantized.eval()
    assert torch.equal(quantized(*args), quantized(*args))
    quantized.train()
    assert not torch.equal(quantized(*args), quantized(*args))
