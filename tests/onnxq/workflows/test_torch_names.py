"""Which module made a node, from its name or its metadata."""

from __future__ import annotations

import pytest

from onnxq.graph import from_proto
from onnxq.storage.node_metadata import add_metadata
from onnxq.workflows.torch_names import module_of, selector_of
from tests.models.zoo_build import Build


def relu(name: str, scopes: str = "") -> str:
    b = Build(17)
    model = from_proto(b.model(b.op("Relu", b.input("x", [1]))))
    (node,) = model.nodes("Relu")
    node.name = name
    if scopes:
        add_metadata(node, {"pkg.torch.onnx.name_scopes": scopes})
    return module_of(node)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("layer1.0.conv1/Conv", "layer1.0.conv1"),
        ("layer1.0.conv1.activation/Relu", "layer1.0.conv1"),
        ("Relu_3", ""),
        ("/layer1/conv/Conv", ""),  # torch's own scopes are no paths
    ],
)
def test_names(name: str, module: str) -> None:
    assert relu(name) == module


@pytest.mark.parametrize(
    ("scopes", "module"),
    [
        ("['', 'body', 'body.0', 'relu']", "body.0"),
        ("['', 'relu']", ""),
        ("no list", ""),
        ("{'a': 1}", ""),
    ],
)
def test_metadata_of_the_dynamo_exporter(scopes: str, module: str) -> None:
    assert relu("node_relu", scopes) == module


def test_a_node_without_a_name_selects_nothing() -> None:
    b = Build(17)
    model = from_proto(b.model(b.op("Relu", b.input("x", [1]))))
    assert selector_of(model.nodes("Relu")[0]) == ""
