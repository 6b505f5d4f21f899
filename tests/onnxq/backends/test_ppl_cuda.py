"""PPL on GPUs: uint8 per channel with zero points."""

from __future__ import annotations

from onnxq.placement import TOTAL_INTEGER
from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("ppl-cuda").scheme
    assert scheme.weight.per_channel
    assert not scheme.weight.symmetric
    assert scheme.weight.observer == scheme.activation.observer == "minmax"


def test_placement() -> None:
    placement = training_only("ppl-cuda").placement
    assert placement == TOTAL_INTEGER
