"""Contents put together from every combination of model, trusted model and data."""

from __future__ import annotations

import pytest

from onnxq.reporting import gathered
from onnxq.workflows.convert import convert
from onnxq.workflows.report import report
from tests.models.reported import contents, float_network, images, quantized_network


def test_weights_and_activations_are_drawn_the_worst_first() -> None:
    drawn = contents().distributions
    activations = [each for each in drawn if each.role == "activation"]
    assert [each.role for each in drawn].index("weight") == len(activations)
    losses = [each.sqnr for each in activations]
    assert losses == sorted(losses)
    assert all(each.grid is not None for each in drawn)
    assert {each.tensor for each in activations} >= {"image", "logits", "pool.out"}


def test_a_clip_that_became_a_range_is_no_saturation() -> None:
    deployed = convert(quantized_network(), "onnxruntime", verify=False)
    found = deployed.full_report(images(), against=float_network()).contents
    (clamped,) = (d for d in found.distributions if d.tensor == "depthwise.bn.out")
    assert clamped.extremes[0] == 0
    assert clamped.clipped < 0.005
    assert "saturated" not in {advice.rule for advice in found.advice}


def test_many_histograms_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered, "MOST_DISTRIBUTIONS", 5)
    assert len(report(quantized_network(), data=images(1)).contents.distributions) == 5


def test_outputs_with_another_name_are_found() -> None:
    renamed = quantized_network().clone()
    renamed.graph.outputs[0].name = "scores"
    found = report(renamed, float_network(), images(1)).contents
    assert found.layers[-1].output == "scores"
    assert found.layers[-1].sqnr is not None


def test_a_recast_has_a_cost_for_each_tensor() -> None:
    other = convert(quantized_network(), "tensorrt", verify=False).model
    found = report(other, quantized_network(), images(1), backend="tensorrt").contents
    assert found.recasts == ()  # the grids are the same
    for node in other.nodes("QuantizeLinear", "DequantizeLinear"):
        if node.inputs[1].name and node.inputs[1].values.size == 1:
            node.inputs[1].values = node.inputs[1].values * 1.5
    found = report(other, quantized_network(), images(1), backend="tensorrt").contents
    assert found.recasts
    assert all(each.sqnr is not None and 10 < each.sqnr < 60 for each in found.recasts)
