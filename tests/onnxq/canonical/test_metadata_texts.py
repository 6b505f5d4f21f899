"""Texts are kept in a file, and anything else there is left alone."""

from __future__ import annotations

from pathlib import Path

from onnxq.canonical.metadata_texts import FLOAT_LAYERS, RANGE_SOURCES, note_texts, texts_of
from onnxq.graph import load, save
from tests.models.build import parse

BODY = "g (float[1] x) => (float[1] y) { y = Neg(x) }"


def test_texts_survive_a_file(tmp_path: Path) -> None:
    model = parse(BODY)
    entry = model.header.metadata_props.add()
    entry.key, entry.value = "author", "somebody"
    note_texts(model, RANGE_SOURCES, {"x": "old"})
    note_texts(model, RANGE_SOURCES, {"x": "mse over 4 samples", "ä": "its own values"})
    save(model, tmp_path / "m.onnx")
    read = load(tmp_path / "m.onnx")
    assert texts_of(read, FLOAT_LAYERS) == {}
    assert texts_of(read, RANGE_SOURCES) == {"x": "mse over 4 samples", "ä": "its own values"}
    assert [e.key for e in read.header.metadata_props] == ["author", RANGE_SOURCES]
    note_texts(read, RANGE_SOURCES, {})
    assert texts_of(read, RANGE_SOURCES) == {}
    assert [e.key for e in read.header.metadata_props] == ["author"]


def test_what_others_wrote_there_is_ignored() -> None:
    for text in ("{", "[1]", '{"x": 1}', ""):
        model = parse(BODY)
        entry = model.header.metadata_props.add()
        entry.key, entry.value = RANGE_SOURCES, text
        assert texts_of(model, RANGE_SOURCES) == {}
