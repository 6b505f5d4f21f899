"""What a user is told of the data and of the samples that rounding has seen."""

from __future__ import annotations

import pytest

from onnxq.graph import from_proto
from onnxq.workflows.quantize import quantize
from onnxq.workflows.quantizing.notes import FEW, SEEN, float_note
from tests.models.networks import NETWORKS, samples


@pytest.mark.parametrize(
    ("count", "few", "seen"), [(1, True, True), (FEW, False, True), (16, False, False)]
)
def test_few_samples_are_told(count: int, few: bool, seen: bool) -> None:
    network = from_proto(NETWORKS["conv1d"]())
    done = quantize(network, "onnxruntime", samples("conv1d", count), method="min-max")
    assert any("give a hundred or more" in note for note in done.notes) is few
    assert (SEEN in done.notes) is (seen and any("GPTQ rounds" in note for note in done.notes))
    assert any("GPTQ rounds" in note for note in done.notes)


def test_of_many_layers_the_first_is_named() -> None:
    assert float_note([], "why") == []
    assert float_note(["a"], "why") == ["'a' in float: why"]
    assert float_note(["a", "b", "c"], "why") == ["'a' and 2 more in float: why"]
