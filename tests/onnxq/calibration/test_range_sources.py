"""Where ranges come from is kept in a file, and anything else there is left alone."""

from __future__ import annotations

from pathlib import Path

from onnxq.calibration.range_sources import KEY, note_sources, sources_of
from onnxq.graph import load, save
from tests.models.build import parse

BODY = "g (float[1] x) => (float[1] y) { y = Neg(x) }"


def test_texts_survive_a_file(tmp_path: Path) -> None:
    model = parse(BODY)
    entry = model.header.metadata_props.add()
    entry.key, entry.value = "author", "somebody"
    note_sources(model, {"x": "old"})
    note_sources(model, {"x": "mse over 4 samples", "ä": "its own values"})
    save(model, tmp_path / "m.onnx")
    read = load(tmp_path / "m.onnx")
    assert sources_of(read) == {"x": "mse over 4 samples", "ä": "its own values"}
    assert [e.key for e in read.header.metadata_props] == ["author", KEY]
    note_sources(read, {})
    assert sources_of(read) == {}
    assert [e.key for e in read.header.metadata_props] == ["author"]


def test_what_others_wrote_there_is_ignored() -> None:
    for text in ("{", "[1]", '{"x": 1}', ""):
        model = parse(BODY)
        entry = model.header.metadata_props.add()
        entry.key, entry.value = KEY, text
        assert sources_of(model) == {}
