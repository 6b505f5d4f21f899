"""Vitis AI: powers of two everywhere, outputs only, biases too."""

from __future__ import annotations

from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("vitis").scheme
    assert scheme.bias is not None
    for spec in (scheme.weight, scheme.activation, scheme.bias):
        assert spec.power_of_two
        assert spec.symmetric
        assert spec.algorithm == "tqt"
        assert spec.range == (-128, 127)
    assert scheme.activation.observer == "pot-mode"


def test_placement() -> None:
    placement = training_only("vitis").placement
    assert placement.inputs == frozenset()
    assert placement.graph_inputs
    assert {"Conv", "Relu", "Concat"} <= placement.outputs
