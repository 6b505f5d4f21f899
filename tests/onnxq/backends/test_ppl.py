"""PPL on DSPs: 8-bit weights, 16-bit activations."""

from __future__ import annotations

from onnxq.placement import TOTAL_INTEGER
from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("ppl").scheme
    assert scheme.weight.range == (0, 255)
    assert scheme.activation.range == (0, 65535)


def test_placement() -> None:
    placement = training_only("ppl").placement
    assert placement == TOTAL_INTEGER
