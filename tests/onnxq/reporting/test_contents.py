"""The numbers of a report."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from onnxq.reporting.contents import Contents
from tests.models.reported import contents


def with_floats(count: int) -> Contents:
    """The contents with the first layers in float."""
    found = contents()
    layers = tuple(
        replace(layer, fate=replace(layer.fate, precision="float")) if at < count else layer
        for at, layer in enumerate(found.layers)
    )
    return replace(found, layers=layers)


def test_coverage_counts_operators_and_weights() -> None:
    assert contents().coverage == 1
    found = with_floats(1)  # the stem
    assert found.coverage == pytest.approx(1 - 1 / len(found.layers))
    weights = [layer.parameters for layer in found.layers if layer.weight]
    assert found.parameter_coverage == pytest.approx(1 - weights[0] / sum(weights))


def test_coverage_of_nothing() -> None:
    empty = replace(contents(), layers=())
    assert empty.coverage is None
    assert empty.parameter_coverage is None


def test_the_worst_output() -> None:
    found = contents()
    assert found.worst_output is not None
    assert found.worst_output.name == "logits"
    assert found.proven is None


def test_json_is_plain() -> None:
    document = json.loads(json.dumps(contents().to_json(), allow_nan=False))
    assert document["samples"] == 4
    assert document["sqnr"] == pytest.approx(contents().worst_output.sqnr)  # type: ignore[union-attr]
    assert {layer["name"] for layer in document["layers"]} >= {"stem", "classifier"}
    assert document["counts"]["error"] == 0
