"""QNN: what the HTP accepts."""

from __future__ import annotations

from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("qnn").scheme
    assert (scheme.weight.symmetric, scheme.weight.per_channel) == (True, True)
    assert scheme.weight.range == (-127, 127)
    assert scheme.activation.types == ("uint8", "uint16")


def test_placement() -> None:
    placement = training_only("qnn").placement
    assert {"MatMul", "Softmax", "Concat"} <= placement.inputs & placement.outputs
    assert placement.absorbed == {"Relu", "Clip"}
