"""IREE: QDQ around layers and products of activations."""

from __future__ import annotations

import pytest

from onnxq.backend import find_backend
from onnxq.operators.traits import WEIGHTED
from tests.models.networks import NETWORKS
from tests.onnxq.backends.check import proven


def test_scheme() -> None:
    scheme = find_backend("iree").scheme
    assert (scheme.weight.trained().symmetric, scheme.weight.per_channel) == (True, True)
    assert scheme.activation.range == (0, 255)


def test_placement() -> None:
    placement = find_backend("iree").placement
    assert placement.inputs == WEIGHTED | {"MatMul"}
    assert not placement.outputs


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_networks(network: str) -> None:
    done = proven("iree", network)
    for node in done.model.nodes("Conv", "ConvTranspose", "Gemm"):
        makers = [t.inputs[0].op if t.inputs else "" for t in node.inputs[:2]]
        assert makers[1] == "DequantizeLinear"
        assert makers[0] in ("DequantizeLinear", "MaxPool", "Flatten", "Concat")
