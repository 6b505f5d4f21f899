"""NNIE: one logarithmic grid, which no other algorithm trains for."""

from __future__ import annotations

from onnxq.placement import INPUTS_ONLY
from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("nnie").scheme
    for spec in (scheme.weight, scheme.activation):
        assert spec.algorithm == "nnie"
        assert spec.algorithm_is_grid


def test_placement() -> None:
    placement = training_only("nnie").placement
    assert placement == INPUTS_ONLY
