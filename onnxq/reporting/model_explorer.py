"""The network and its overlays as files for Google's Model Explorer.

`graph.json` is a graph in Model Explorer's own format, which its built-in JSON adapter loads: nodes
with a path that makes groups, edges, attributes and output tensors. The other files are node data:
a value for each node, and the colours of ranges. They belong to the graph by its id.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxq.disk.file_set import FileSet
from onnxq.reporting.contents import Contents
from onnxq.reporting.network import Layer
from onnxq.reporting.page_views import decibels, visible

GRAPH, PRECISION, ERROR, ADDED = "graph.json", "precision.json", "error.json", "added_noise.json"

_MOST_DECIBELS = 120.0
"""Stands for no difference at all: node data are plain numbers."""
_FILLS = {"integer": "#3573c4", "float": "#d97b16", "constant": "#9aa3af", "index": "#b9c0ca"}
_RAMP = ("#a50026", "#e8602d", "#fbc15e", "#c9dfec", "#5b93c7")
_DECIBELS = (10.0, 20.0, 30.0, 40.0, _MOST_DECIBELS)
_SHARES = (0.01, 0.1, 0.3, 1.0, 100.0)


def write_model_explorer(contents: Contents, folder: Path) -> list[Path]:
    """Write the graph and its node data into `folder`."""
    documents = dict(documents_of(contents))
    with FileSet(folder, documents) as files:
        for name, document in documents.items():
            files.stage(name).write(json.dumps(document, allow_nan=False, indent=1).encode())
    return [folder / name for name in documents]


def documents_of(contents: Contents) -> Iterator[tuple[str, Any]]:
    """The files, by name; overlays only of what was measured."""
    title, layers = visible(contents.facts.title), contents.layers
    nodes = [_node(str(at), layer) for at, layer in enumerate(layers)]
    yield GRAPH, {"label": title, "graphs": [{"id": title, "nodes": nodes}]}
    kinds = {
        str(at): {"value": layer.fate.precision, "bgColor": _FILLS[layer.fate.precision]}
        for at, layer in enumerate(layers)
    }
    yield PRECISION, _overlay(title, "precision", kinds, ())
    compared = [(str(at), layer) for at, layer in enumerate(layers) if layer.sqnr is not None]
    if compared:
        errors = {at: {"value": _capped(layer.sqnr)} for at, layer in compared}
        thresholds = list(zip(_DECIBELS, _RAMP, strict=True))
        yield ERROR, _overlay(title, "signal to noise, dB", errors, thresholds)
        added = {at: {"value": round(100 * (layer.added or 0.0), 4)} for at, layer in compared}
        thresholds = list(zip(_SHARES, reversed(_RAMP), strict=True))
        yield ADDED, _overlay(title, "added noise, %", added, thresholds)


def _node(number: str, layer: Layer) -> dict[str, Any]:
    told = {
        "name": layer.name,
        "runs on": layer.fate.precision,
        "kernel": layer.fate.kernel,
        "why float": layer.fate.reason,
        "rounded to": layer.quantizer or "not rounded",
        "signal to noise": "" if layer.sqnr is None else decibels(layer.sqnr),
        "parameters": f"{layer.parameters:,}" if layer.parameters else "",
    }
    tensor = {
        "__tensor_tag": layer.output,
        "tensor_name": layer.output,
        "tensor_shape": layer.shape,
    }
    return {
        "id": number,
        "label": visible(layer.op),
        "namespace": _namespace(visible(layer.name)),
        "attrs": _pairs(told),
        "incomingEdges": [{"sourceNodeId": str(source)} for source in layer.producers],
        "outputsMetadata": [{"id": "0", "attrs": _pairs(tensor)}],
    }


def _pairs(told: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": visible(value)} for key, value in told.items() if value]


def _namespace(name: str) -> str:
    """The path of the groups around a node: exporters separate modules by '/' or '.'."""
    parts = [part for part in name.split("/" if "/" in name else ".") if part]
    return "/".join(parts[:-1])


def _overlay(graph: str, name: str, results: Mapping[str, Any], thresholds: Any) -> dict[str, Any]:
    steps = [{"value": value, "bgColor": fill} for value, fill in thresholds]
    return {graph: {"name": name, "results": results, "thresholds": steps}}


def _capped(sqnr: float | None) -> float:
    if sqnr is None or math.isnan(sqnr):
        return 0.0
    return round(max(-_MOST_DECIBELS, min(sqnr, _MOST_DECIBELS)), 2)


__all__ = ["ADDED", "ERROR", "GRAPH", "PRECISION", "documents_of", "write_model_explorer"]
