"""MNN: compression parameters beside a float model."""

from __future__ import annotations

import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.errors import SaveError
from onnxq.graph import Model
from tests.models.networks import NETWORKS
from tests.onnxq.backends.check import proven
from tests.onnxq.backends.off_axis import off_axis_product


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str) -> None:
    done = proven("mnn", network)
    clean, parameters = (a.content for a in done.artifacts)
    assert isinstance(clean, Model)
    assert not clean.nodes("onnxq::FakeQuantize")
    assert isinstance(parameters, bytes)
    assert [a.suffix for a in done.artifacts] == ["_deploy_model.onnx", "_mnn_compression.bin"]


def test_scheme() -> None:
    scheme = find_backend("mnn").scheme
    assert scheme.activation.symmetric
    assert scheme.weight.per_channel


def test_scales_along_a_summed_axis_are_refused() -> None:
    with pytest.raises(SaveError, match=r"'w': its scales run along axis 0, .* along axis 1"):
        onnxq.convert(off_axis_product(), "mnn")
