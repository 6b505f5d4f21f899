"""The schemas of documents: complete, strict, and true of what commands print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.cli import demo as demo_command
from onnxq.cli.commands import app
from onnxq.cli.schema import schema_names, schema_of
from onnxq.graph import save
from onnxq.workflows import demo
from tests.checks.documents import faults, validator
from tests.onnxq.conftest import Run

COMMANDS = [name for name in schema_names() if name != "error"]
OPTIONAL = {
    *("axis", "block", "readers", "source", "logarithmic"),
    *("averages", "extremes", "zero_point"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quantized model, the float one, and data."""
    made = tmp_path_factory.mktemp("documents")
    save(demo.quantize(demo.build()), made / "model.onnx")
    save(demo.build(), made / "float.onnx")
    values = np.random.default_rng(0).normal(size=(3, 3, 32, 32)).astype(np.float32)
    np.savez(made / "data.npz", image=values)
    return made


WORDS = {
    "backends": ["tensorrt"],
    "bench": ["float.onnx", "model.onnx", "--seconds", "0.05"],
    "calibrate": ["float.onnx", "-b", "tensorrt", "--data", "data.npz", "-o", "s.stats"],
    "calibrate merge": ["part.stats", "-o", "all.stats"],
    "convert": ["model.onnx", "-b", "vitis", "--allow-requantize", "-o", "vitis"],
    "demo": ["-o", "demo"],
    "doctor": [],
    "encodings": ["model.onnx", "-f", "aimet-1.0.0", "-o", "side"],
    "explain": ["model.onnx", "image", "-b", "onnxruntime"],
    "formats": ["tensorrt-cache"],
    "inspect": ["model.onnx"],
    "lint": ["float.onnx", "-b", "onnxruntime"],
    "passes": ["to-qdq"],
    "quantize": [
        *("float.onnx", "-b", "onnxruntime", "--data", "data.npz", "-o", "q"),
        *("--keep-float", "1"),
    ],
    "report": ["model.onnx", "--against", "float.onnx", "--data", "data.npz", "-o", "r.html"],
    "run": ["model.onnx", "-p", "to-qdq", "-o", "new.onnx"],
    "verify": ["model.onnx", "float.onnx", "--per-layer"],
}
"""A call of each command, in the folder."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_document_is_as_described_and_no_key_may_go(
    command: str, folder: Path, onnxq: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(demo_command, "_WIDTH", 8)
    monkeypatch.setattr(demo_command, "_SECONDS", 0.05)
    if command == "calibrate merge":
        onnxq("calibrate", *WORDS["calibrate"][:-1], "part.stats")
    code, out, err = onnxq(*command.split(), *WORDS[command], "--json")
    assert code in (0, 1), err
    document = json.loads(out)
    assert not faults(command, document)
    body = document[0] if isinstance(document, list) else document
    for key in body:
        without = {name: value for name, value in body.items() if name != key}
        retyped = body | {key: {"": [{}]}}
        added = body | {"unknown": 1}
        for wrong in (without, retyped, added):
            assert faults(command, [wrong] if isinstance(document, list) else wrong), key


@pytest.mark.parametrize("command", ["passes", "backends", "formats"])
def test_a_listing_is_as_described(command: str, onnxq: Run) -> None:
    code, out, _ = onnxq(command, "--json")
    assert code == 0
    assert not faults(command, json.loads(out))
    assert not faults(command, [{"name": "mine", "error": "it does not import"}])


def test_a_word_is_as_described(onnxq: Run) -> None:
    code, out, _ = onnxq("explain", "step", "--json")
    assert code == 0
    assert not faults("explain", json.loads(out))


def test_an_error_is_as_described(onnxq: Run) -> None:
    code, out, _ = onnxq("inspect", "missing.onnx", "--json")
    assert code == 2
    assert not faults("error", json.loads(out))
    assert faults("error", {"error": "alone"})


def test_every_command_with_documents_has_a_schema() -> None:
    known = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    assert set(COMMANDS) == known - {"schema"}
    assert set(WORDS) == set(COMMANDS)


@pytest.mark.parametrize("name", schema_names())
def test_a_schema_is_valid_and_leaves_nothing_open(name: str) -> None:
    schema = validator(name).schema
    assert schema["description"]
    for each in objects(schema):
        assert each["additionalProperties"] is False
        assert set(each["properties"]) - set(each["required"]) <= OPTIONAL
        assert all("$ref" in v or v["description"] for v in each["properties"].values())


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """All schemas of objects with known keys, at any depth."""
    if isinstance(schema, dict):
        if isinstance(schema.get("required"), list):
            yield schema
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            yield from objects(each)


def test_the_command_prints_a_schema(onnxq: Run) -> None:
    assert json.loads(onnxq("schema", "calibrate", "merge")[1]) == schema_of("calibrate merge")
    assert "convert" in onnxq("schema")[1]


def test_an_unknown_command_is_named(onnxq: Run) -> None:
    code, _, err = onnxq("schema", "convrt")
    assert code == 2
    assert "'convrt' prints no document" in err
    assert "convert" in err.partition("next:")[2]
