"""Files for Model Explorer in its documented format.

`tests/browser/test_model_explorer.py` loads them with the real package, in its own viewer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxq.reporting.model_explorer import ADDED, ERROR, GRAPH, PRECISION, documents_of
from onnxq.reporting.model_explorer import write_model_explorer as write
from tests.models.reported import contents


def documents() -> dict[str, Any]:
    return json.loads(json.dumps(dict(documents_of(contents())), allow_nan=False))


def test_nodes_edges_and_groups() -> None:
    (graph,) = documents()[GRAPH]["graphs"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(contents().layers)
    named = {attr["value"]: node for node in nodes.values() for attr in node["attrs"]}
    conv, add = named["block.conv1"], named["block.add"]
    assert (conv["label"], conv["namespace"]) == ("Conv", "block")
    makers = [nodes[edge["sourceNodeId"]] for edge in add["incomingEdges"]]
    assert {maker["label"] for maker in makers} == {"Conv", "Relu"}
    for node in nodes.values():
        assert {edge["sourceNodeId"] for edge in node["incomingEdges"]} <= set(nodes)


def test_overlays_belong_to_the_graph() -> None:
    found = documents()
    (graph,) = found.pop(GRAPH)["graphs"]
    assert set(found) == {PRECISION, ERROR, ADDED}
    ids = {node["id"] for node in graph["nodes"]}
    for overlay in found.values():
        ((graph_id, data),) = overlay.items()
        assert graph_id == graph["id"]
        assert set(data["results"]) <= ids
    results = found[ERROR][graph["id"]]["results"]
    assert all(isinstance(result["value"], float) for result in results.values())
    thresholds = [step["value"] for step in found[ERROR][graph["id"]]["thresholds"]]
    assert thresholds == sorted(thresholds)
    assert found[PRECISION][graph["id"]]["results"]["0"]["value"] == "integer"


def test_overlays_of_what_was_not_measured_are_left_out(tmp_path: Path) -> None:
    bare = replace(contents(), layers=tuple(replace(x, error=None) for x in contents().layers))
    assert [path.name for path in write(bare, tmp_path)] == [GRAPH, PRECISION]
    assert json.loads((tmp_path / GRAPH).read_text(encoding="utf-8"))["graphs"]
