"""Words that may have been meant are found among many, and long ones are not compared."""

from __future__ import annotations

import difflib

import pytest

from onnxq.errors import near_matches
from onnxq.near_words import MOST_WORDS, closest

MANY = [f"/model/layer{i}/conv/output_{i % 7}" for i in range(5000)]


@pytest.mark.parametrize(
    "word",
    [
        "/model/layer4000/conv/output_",
        "/modl/layer4000/conv/output_3",
        "model/layer77/conv/output_0",
    ],
)
def test_a_word_that_begins_or_ends_right_is_found_among_many(word: str) -> None:
    assert difflib.SequenceMatcher(None, word, closest(word, MANY)[0]).ratio() > 0.9


def test_few_of_many_words_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def count(word: str, words: list[str], **_: object) -> list[str]:
        compared.append(len(words))
        return []

    monkeypatch.setattr(difflib, "get_close_matches", count)
    assert closest("/model/conv", MANY) == []
    assert 0 < compared[0] <= 2 * MOST_WORDS < len(MANY)
    assert closest("x" * 10_000, ["x" * 9_999]) == []
    assert closest("x", ["x" * 10_000]) == []
    assert compared[1:] == [0]


def test_a_message_lists_some_words_and_counts_the_rest() -> None:
    said = near_matches("?", [f"{i:03}" for i in range(300)])
    assert said.startswith("choose from: 000, 001")
    assert said.endswith(" and 260 more")
    for length in (1, 30, 210, 10_000):
        said = near_matches("?", [f"{i:0{length}}" for i in range(300)])
        assert len(said) < 240  # three lines of a terminal
        assert said.startswith("choose from: 0")
