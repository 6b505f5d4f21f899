"""PPL W8A16: 16-bit activations, 8-bit weights, JSON in MQBench's form."""

from __future__ import annotations

import json

import pytest

import onnxq
from onnxq.backend import find_backend
from tests.models.networks import NETWORKS, quantized
from tests.onnxq.backends.check import proven_by_files


def test_scheme() -> None:
    scheme = find_backend("ppl").scheme
    assert scheme.weight.range == (0, 255)
    assert scheme.activation.range == (0, 65535)
    assert "Conv" in find_backend("ppl").placement.outputs


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_proven_by_their_files(network: str) -> None:
    (text,) = proven_by_files("ppl", network).values()
    widths = {entry["bit"] for entry in json.loads(text)["ppl"].values()}
    assert widths == {8, 16}


def test_file_names() -> None:
    done = onnxq.convert(quantized("conv1d", find_backend("ppl")), "ppl", verify=False)
    assert [a.suffix for a in done.artifacts] == ["_deploy_model.onnx", "_clip_ranges.json"]
