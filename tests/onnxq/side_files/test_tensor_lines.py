"""Text files with one tensor per line."""

from __future__ import annotations

import re

import pytest

from onnxq.errors import LoadError
from onnxq.side_files.tensor_lines import matches, tensor_lines

LINE = re.compile(r"(.+) ([0-9]+)\r?")


def test_lines_come_with_their_places() -> None:
    found = list(tensor_lines("a 1\n\nb\u2028c 2\r\n", LINE, "'<tensor> <number>'"))
    assert [match.groups() for _, match in found] == [("a", "1"), ("b\u2028c", "2")]
    assert [entry.where for entry, _ in found] == [
        "line 1, tensor 'a'",
        "line 3, tensor 'b\u2028c'",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a 1\nb\n", "line 2 is not '<tensor> <number>'"),
        ("a 1\nb 2\na 1\n", "line 3, tensor 'a': duplicate line"),
    ],
)
def test_bad_lines_are_named(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why) as raised:
        list(tensor_lines(text, LINE, "'<tensor> <number>'"))
    assert "every line is '<tensor> <number>'" in raised.value.fix


def test_all_lines_match_or_none_does() -> None:
    assert [match[1] for match in matches("a 1\n\nb 2\n", LINE)] == ["a", "b"]
    assert matches("a 1\nb\n", LINE) == []
    assert matches("", LINE) == []
