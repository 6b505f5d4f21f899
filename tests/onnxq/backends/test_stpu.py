"""STPU: symmetric on -127..127 with fixed scales."""

from __future__ import annotations

from onnxq.placement import TOTAL_INTEGER
from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("stpu").scheme
    for spec in (scheme.weight, scheme.activation):
        assert spec.range == (-127, 127)
        assert spec.symmetric
        assert not spec.per_channel
        assert spec.algorithm == "fixed"


def test_placement() -> None:
    placement = training_only("stpu").placement
    assert placement == TOTAL_INTEGER
