"""SNPE: uint8 with a zero point, one range per tensor, encodings of both groups."""

from __future__ import annotations

import json

import pytest

import onnxq
from onnxq.backend import find_backend
from tests.models.networks import NETWORKS, quantized
from tests.onnxq.backends.check import proven_by_files


def test_scheme() -> None:
    scheme = find_backend("snpe").scheme
    for spec in (scheme.weight, scheme.activation):
        assert spec.qtype.name == "uint8"
        assert not spec.symmetric
        assert not spec.per_channel
    assert scheme.bias is None


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_proven_by_their_files(network: str) -> None:
    texts = proven_by_files("snpe", network)
    assert set(texts) == {"_clip_ranges.json", "_encodings_1.0.0.json"}


def test_both_groups_are_filled_with_right_offsets() -> None:
    found = json.loads(proven_by_files("snpe", "resnet")["_clip_ranges.json"])
    assert found["version"] == "0.6.1"
    assert len(found["activation_encodings"]) >= 10
    assert len(found["param_encodings"]) == 7
    for group in ("activation_encodings", "param_encodings"):
        for (entry,) in found[group].values():
            assert entry["bitwidth"] == 8
            assert -255 <= entry["offset"] <= 0
            assert entry["min"] == entry["scale"] * entry["offset"]
            assert entry["min"] <= 0 <= entry["max"]


def test_the_clean_model_is_float() -> None:
    done = onnxq.convert(quantized("resnet", find_backend("snpe")), "snpe", verify=False)
    assert done.artifacts[0].suffix == "_deploy_model.onnx"
    assert not done.model.nodes("onnxq::FakeQuantize", "QuantizeLinear")


def test_placement() -> None:
    placement = find_backend("snpe").placement
    assert "Conv" in placement.inputs
    assert "Conv" in placement.outputs
    assert "Relu" in placement.absorbed
