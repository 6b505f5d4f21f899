"""OpenVINO: 7-bit weights, unsigned activations where nothing is negative."""

from __future__ import annotations

from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("openvino").scheme
    assert scheme.weight.range == (-64, 63)
    assert (scheme.weight.symmetric, scheme.weight.per_channel) == (True, True)
    # Two products of the largest codes fit the 16 bits that older CPUs add in.
    assert 2 * 255 * max(map(abs, scheme.weight.range)) < 2**15
    assert scheme.activation.unsigned().range == (0, 255)


def test_placement() -> None:
    placement = training_only("openvino").placement
    assert placement.unsigned
    assert placement.graph_inputs
    assert "Concat" in placement.moves & placement.unified
    assert placement.accumulated == {"Conv"}
