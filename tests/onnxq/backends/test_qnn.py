"""QNN: QDQ for onnxruntime's provider, encodings of three versions for the converters."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.errors import BackendError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.quant.qparams import Role
from tests.models.build import parse, quantize, weight
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


CONV = """g (float[1,2,6,6] x) => (float[1,3,6,6] y)
    <float[3,2,1,1] w = {1.27, -0.3, 0.7, 2.1, 0.1, 0.9}, float low = {0}, float high = {%s}> {
    c = Conv<kernel_shape=[1,1]>(x, w)
    y = Clip(c, low, high)
}"""


def conv(high: str = "6", **fields: Any) -> Model:
    model = parse(CONV % high)
    quantize(model, "x", qtype="uint8", zero_point=120, scale=np.float32(0.05))
    quantize(model, "y", qtype="uint8", scale=np.float32(0.05))
    return weight(model, "w", **fields)


@pytest.mark.parametrize(("kind", "zero"), [("uint8", 60), ("int8", -68)])
def test_weights_of_one_scale_may_have_a_zero_point(kind: str, zero: int) -> None:
    done = onnxq.convert(conv(qtype=kind, zero_point=zero, scale=np.float32(0.0118)), "qnn")
    assert done.proven
    assert done.change is None
    (row,) = done.table.of(Role.WEIGHT)
    assert (str(row.qtype), int(row.zero_point)) == ("uint8", 60)
    for artifact in done.artifacts:
        if artifact.suffix == "_encodings_1.0.0.json":
            (entry,) = json.loads(str(artifact.content))["param_encodings"]
            assert (entry["is_sym"], entry["offset"], entry["bw"]) == (False, [-60], 8)


def test_weights_of_a_scale_per_channel_may_not() -> None:
    fields = {"scale": np.float32([0.0065, 0.01, 0.005]), "axis": 0}
    with pytest.raises(BackendError, match="type uint8"):
        onnxq.convert(conv(qtype="uint8", zero_point=np.array([50, 0, 9]), **fields), "qnn")


@pytest.mark.parametrize("high", ["6", "12.75", "1.03", "0.37"])
def test_a_clip_is_no_obstacle_to_encodings(high: str) -> None:
    """Cut codes cannot be written; what is before the Clip is quantized instead."""
    done = onnxq.convert(conv(high, scale=np.float32(0.02)), "qnn")
    assert done.proven
    assert done.change is None
    assert not [f for f in done.findings if f.severity == "error"]
    assert len(done.model.nodes("Clip")) == (high != "12.75")
    assert {(row.lo, row.hi) for row in done.table.of(Role.ACTIVATION)} == {(0, 255)}
