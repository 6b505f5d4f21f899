"""The words of onnxq, and the page and the command that show them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onnxq.glossary import look_up, words
from tests.models.lint_cases import conv_net
from tests.onnxq.conftest import Run

DOCS = Path(__file__).parents[2] / "docs"


def test_words_are_in_order_and_mean_one_thing() -> None:
    names = [word.name for word in words()]
    assert names == sorted(names, key=str.lower)
    every = [name for word in words() for name in (word.name, *word.also)]
    assert [look_up(name) for name in every] == [
        word for word in words() for _ in (word.name, *word.also)
    ]


def test_definitions_are_short_sentences_without_markup() -> None:
    for word in words():
        assert 30 < len(word.text) < 400, word.name
        assert word.text.endswith("."), word.name
        assert not re.search(r"[`\n]|\*\*", word.text), word.name


def test_pages_have_the_headings() -> None:
    for word in words():
        page, _, anchor = word.page.partition("#")
        if page:
            text = (DOCS / page).read_text(encoding="utf-8")
            heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            assert not anchor or anchor in {h.lower().replace(" ", "-") for h in heads}, word.name


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("step", "step"),
        ("Steps", "step"),
        ("zero_point", "zero point"),
        ("per channel", "per-channel"),
        ("sqnr", "SQNR"),
        ("requantize", "recast"),
        ("Quantization-Aware Training", "QAT"),
    ],
)
def test_spelling_is_free(spelled: str, name: str) -> None:
    found = look_up(spelled)
    assert found is not None
    assert found.name == name


def test_explain_prints_a_word(onnxq: Run) -> None:
    code, out, err = onnxq("explain", "step")
    assert (code, err) == (0, "")
    step = look_up("step")
    assert step is not None
    assert step.text in " ".join(out.split())
    code, out, _ = onnxq("explain", "zero", "point", "--json")
    zero = look_up("zero point")
    assert zero is not None
    assert json.loads(out) == zero.to_json()


def test_explain_suggests_a_word(onnxq: Run) -> None:
    code, out, err = onnxq("explain", "obsever")
    assert (code, out) == (2, "")
    assert "'obsever' is neither a file nor a word" in err
    assert "did you mean 'observer'" in err


def test_a_file_goes_before_a_word(
    onnxq: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("step").write_bytes(conv_net().SerializeToString())
    code, out, _ = onnxq("explain", "step", "active")
    assert code == 0
    assert "quantized" in out
    code, _, err = onnxq("explain", "step")
    assert code == 2
    assert "no tensor of 'step' given" in err


def test_a_missing_model_is_still_a_missing_model(onnxq: Run, tmp_path: Path) -> None:
    for words_ in ((tmp_path / "no.onnx",), (tmp_path / "no.onnx", "image"), ("modle", "image")):
        code, _, err = onnxq("explain", *words_)
        assert code == 2
        assert "check the path" in err
