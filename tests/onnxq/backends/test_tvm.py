"""TVM: plain QDQ; convolutions, sums and average pools are quantized."""

from __future__ import annotations

import pytest

from onnxq.backend import find_backend
from onnxq.graph.constants import array
from tests.models.networks import NETWORKS
from tests.onnxq.backends.check import proven


def test_scheme() -> None:
    scheme = find_backend("tvm").scheme
    assert scheme.weight.types == scheme.activation.types == ("uint8", "int8")


def test_placement() -> None:
    placement = find_backend("tvm").placement
    assert placement.weights == {"Conv"}
    assert "Linear" not in placement.inputs | placement.outputs
    assert "Relu" in placement.absorbed


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_networks(network: str) -> None:
    done = proven("tvm", network)
    ops = {node.op for node in done.model.nodes()}
    assert "QuantizeLinear" in ops
    assert not any(op.startswith("QLinear") for op in ops)
    for node in done.model.nodes("QuantizeLinear"):  # a vector of one breaks the importer
        assert array(node.inputs[1]).ndim == array(node.inputs[2]).ndim == 0
