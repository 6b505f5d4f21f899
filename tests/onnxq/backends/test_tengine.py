"""Tengine: every tensor has a scale, Relu behind a sum has its own."""

from __future__ import annotations

from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("tengine").scheme
    assert scheme.weight.types == scheme.activation.types == ("uint8",)


def test_placement() -> None:
    placement = training_only("tengine").placement
    assert placement.graph_outputs
    assert placement.absorbed == placement.merged == frozenset()
    assert {"Concat", "HardSwish", "Sigmoid"} <= placement.inputs & placement.outputs
