"""Tengine: uint8, outputs of the graph too, a text of scales."""

from __future__ import annotations

import pytest

import onnxq
from onnxq.backend import find_backend
from tests.models.networks import NETWORKS, quantized
from tests.onnxq.backends.check import proven_by_files


def test_scheme() -> None:
    scheme = find_backend("tengine").scheme
    for spec in (scheme.weight, scheme.activation):
        assert spec.range == (0, 255)
        assert not spec.symmetric
    placement = find_backend("tengine").placement
    assert placement.graph_outputs
    assert "Relu" not in placement.absorbed


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_proven_by_their_files(network: str) -> None:
    (text,) = proven_by_files("tengine", network).values()
    for line in text.splitlines():
        _, scale, zero = line.split(" ")
        assert float(scale) > 0
        assert 0 <= int(zero) <= 255


def test_file_names() -> None:
    done = onnxq.convert(quantized("conv1d", find_backend("tengine")), "tengine", verify=False)
    assert [a.suffix for a in done.artifacts] == ["_for_tengine.onnx", "_for_tengine.scale"]
