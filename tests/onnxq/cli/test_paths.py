from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxq.graph import from_proto, save
from tests.models.stored_models import listing, model_proto
from tests.onnxq.conftest import Run
from tests.onnxq.disk.test_recovery import half, hidden

__all__ = ["half"]


@pytest.mark.parametrize("words", ["inspect {m}", "lint {m} -b onnxruntime", "verify {m} {m}"])
def test_reading_a_folder_completes_what_was_left_in_it(onnxq: Run, half: Path, words: str) -> None:
    model = half.parent / "m.onnx"
    save(from_proto(model_proto()), model)
    model.rename(half / "m.onnx")
    _, _, err = onnxq(*words.format(m=half / "m.onnx").split())
    assert "completed now: b" in " ".join(err.split())
    assert listing(half).keys() == {"a", "b", "m.onnx"}


def test_writing_too_and_the_document_tells(onnxq: Run, half: Path, tmp_path: Path) -> None:
    model = tmp_path / "in" / "m.onnx"
    save(from_proto(model_proto()), model)
    words = ("run", model, "-p", "drop-identity", "-o", half / "o.onnx", "--json")
    code, out, err = onnxq(*words)
    assert code == 0, err
    assert "completed now: b" in json.loads(out)["notes"][0]
    assert json.loads(onnxq(*words)[1])["notes"] == []
    unproven = half / "unproven"
    unproven.mkdir()
    (unproven / hidden(0)).touch()
    _, out, _ = onnxq("convert", model, "-b", "onnxruntime", "-o", half, "--json")
    assert listing(unproven) == {}


@pytest.mark.parametrize(
    "words", ["inspect {e}", "convert m.onnx -b tvm -o {e}", "run m.onnx -p x -o {e}"]
)
def test_an_empty_path_is_not_the_current_folder(onnxq: Run, words: str) -> None:
    code, _, err = onnxq(*("" if word == "{e}" else word for word in words.split()))
    assert code == 2
    assert "the path is empty" in err
