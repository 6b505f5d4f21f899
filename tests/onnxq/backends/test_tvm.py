"""TVM: convolutions, sums and average pools in uint8; the rest stays float."""

from __future__ import annotations

from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("tvm").scheme
    assert scheme.weight.types == scheme.activation.types == ("uint8",)


def test_placement() -> None:
    placement = training_only("tvm").placement
    assert placement.weights == {"Conv"}
    assert "Linear" not in placement.inputs | placement.outputs
    assert "Relu" in placement.absorbed
