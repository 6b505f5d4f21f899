"""Ranges from few values are told, with the samples that would do."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.observing.statistics import Statistics
from onnxq.observing.tensor_statistics import Wanted
from onnxq.workflows.quantizing.few_values import few_values_note


def statistics(distribution: bool = True, **sizes: int) -> Statistics:
    """Four samples of tensors of these sizes."""
    made = Statistics.of("", {name: Wanted(distribution=distribution) for name in sizes})
    rng = np.random.default_rng(0)
    for _ in range(4):
        for name, size in sizes.items():
            made.tensors[name].add(rng.normal(size=size).astype(np.float32))
        made.samples += 1
    return made


def test_the_worst_is_named_with_the_samples_it_needs() -> None:
    found = statistics(x=10, h=64, wide=4000)
    (note,) = few_values_note(found, ["h", "x", "wide", "unseen"])
    assert "the range of 'x' comes from 40 values, and 1 more range from few as well" in note
    assert "give 100 samples or more" in note


@pytest.mark.parametrize(
    ("found", "quantized"),
    [
        (statistics(x=250), ["x"]),
        (statistics(x=10), ["y"]),
        (statistics(distribution=False, x=10), ["x"]),
    ],
    ids=["enough", "not quantized", "values not counted"],
)
def test_others_are_not(found: Statistics, quantized: list[str]) -> None:
    assert few_values_note(found, quantized) == []
