"""The setting of papers on transformers: linear layers and products of activations."""

from __future__ import annotations

import pytest

from onnxq.backend import find_backend
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from tests.models.networks import NETWORKS
from tests.onnxq.backends.check import proven


def test_scheme() -> None:
    assert find_backend("academic-nlp").scheme == find_backend("academic").scheme


def test_placement() -> None:
    placement = find_backend("academic-nlp").placement
    assert placement.inputs == {"Linear", "MatMul"}
    assert placement.boundary_bits is None
    assert "Embedding" in placement.weights


@pytest.mark.parametrize("network", sorted(NETWORKS.keys() - {"unet"}))  # no linear layer there
def test_networks(network: str) -> None:
    assert proven("academic-nlp", network).model.nodes(FAKE_QUANTIZE)
