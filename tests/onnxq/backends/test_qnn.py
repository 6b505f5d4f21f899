"""QNN: QDQ for onnxruntime's provider, encodings of three versions for the converters."""

from __future__ import annotations

import json

import numpy as np
import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.graph import Model
from onnxq.graph.constants import array
from tests.models.networks import NETWORKS, quantized
from tests.onnxq.backends.check import proven_by_files


def test_scheme() -> None:
    backend = find_backend("qnn")
    assert backend.scheme.weight.symmetric
    assert backend.scheme.weight.per_channel
    assert backend.scheme.activation.types == ("uint8", "uint16")
    assert {"MatMul", "Softmax", "Concat"} <= backend.placement.inputs


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_proven_by_their_files(network: str) -> None:
    texts = proven_by_files("qnn", network, qdq=True)
    assert set(texts) == {f"_encodings_{v}.json" for v in ("0.6.1", "1.0.0", "2.0.0")}
    for suffix, text in texts.items():
        assert json.loads(text)["version"] in suffix


def test_the_versions_say_the_same() -> None:
    texts = proven_by_files("qnn", "resnet", qdq=True)
    first, second, third = (json.loads(t) for t in texts.values())
    for group in ("activation_encodings", "param_encodings"):
        named = {entry["name"]: entry for entry in second[group]}
        assert set(first[group]) == set(named)
        for name, entries in first[group].items():
            assert [e["scale"] for e in entries] == named[name]["scale"]
            assert [e["offset"] for e in entries] == named[name]["offset"]
    flat = {entry["name"]: entry for entry in third["encodings"]}
    assert set(flat) == set(first["activation_encodings"]) | set(first["param_encodings"])
    for name, (entry,) in first["activation_encodings"].items():
        assert flat[name].get("y_zero_point", 0) == -entry["offset"]
        assert flat[name]["output_dtype"] == "uint8"


@pytest.mark.parametrize("network", NETWORKS)
def test_what_the_htp_takes(network: str) -> None:
    done = onnxq.convert(quantized(network, find_backend("qnn")), "qnn", verify=False)
    assert not [f for f in done.findings if f.rule == "qnn-node-units"]
    for node in done.model.nodes("DequantizeLinear"):
        zero = array(node.inputs[2])
        assert zero.dtype == np.uint8 or not zero.any()


def test_quantizers_do_the_work_of_relu_in_the_qdq_model_alone() -> None:
    done = onnxq.convert(quantized("transformer", find_backend("qnn")), "qnn", verify=False)
    assert len(done.source.nodes("Relu")) == 1
    assert not done.model.nodes("Relu")
    clean = next(a.content for a in done.artifacts if a.suffix == "_deploy_model.onnx")
    assert isinstance(clean, Model)
    assert len(clean.nodes("Relu")) == 1
