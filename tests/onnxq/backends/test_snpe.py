"""SNPE: uint8 with zero points, every op reads and writes codes."""

from __future__ import annotations

from onnxq.placement import TOTAL_INTEGER
from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("snpe").scheme
    assert scheme.weight.types == ("uint8",)
    assert not scheme.weight.symmetric
    assert not scheme.weight.per_channel
    assert scheme.activation.range == (0, 255)


def test_placement() -> None:
    placement = training_only("snpe").placement
    assert placement == TOTAL_INTEGER
