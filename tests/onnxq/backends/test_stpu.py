"""STPU: int8 on -127..127, ranges by tensor and by layer."""

from __future__ import annotations

import json

import pytest

import onnxq
from onnxq.backend import find_backend
from tests.models.networks import NETWORKS, quantized
from tests.onnxq.backends.check import proven_by_files


def test_scheme() -> None:
    scheme = find_backend("stpu").scheme
    for spec in (scheme.weight, scheme.activation):
        assert spec.range == (-127, 127)
        assert spec.symmetric
        assert spec.algorithm == "fixed"
    assert "Conv" in find_backend("stpu").placement.outputs


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_proven_by_their_files(network: str) -> None:
    (text,) = proven_by_files("stpu", network).values()
    found = json.loads(text)
    assert sum(name.endswith("_weights") for name in found) >= 4
    for name, entry in found.items():
        if "min" in entry:
            assert entry["min"] == -entry["max"] < 0, name


def test_biases_are_in_steps_of_their_sums() -> None:
    found = json.loads(proven_by_files("stpu", "conv1d")["_stpu_minmax.json"])
    biases = {name: e for name, e in found.items() if name.endswith("_bias")}
    assert len(biases) == 4
    for name, entry in biases.items():
        weight = found[f"{name.removesuffix('_bias')}_weights"]["max"] / 127
        inputs = {
            e["max"] / 127 for n, e in found.items() if not n.endswith("_weights") and "max" in e
        }
        assert any(entry["alpha"] == pytest.approx(weight * x, rel=1e-12) for x in inputs)


def test_file_names() -> None:
    done = onnxq.convert(quantized("conv1d", find_backend("stpu")), "stpu", verify=False)
    assert [a.suffix for a in done.artifacts] == ["_for_stpu.onnx", "_stpu_minmax.json"]
