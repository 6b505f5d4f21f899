"""docs/api.md lists what `__all__` says, no more and no less."""

from __future__ import annotations

from pathlib import Path

from tests.suites.api_page import page


def test_the_page_is_up_to_date() -> None:
    written = Path(__file__).parents[2] / "docs" / "api.md"
    assert written.read_text(encoding="utf-8") == page()


def test_fields_and_constants_are_described_by_the_literals_below_them() -> None:
    told = page().splitlines()
    assert "| `summary` | `str` |  |  |" in told, "a field without a literal"
    assert "| `symmetric` | `bool` | `False` | Whether the zero point must be 0. |" in told
    assert "| `READ` | Every dialect to the canonical form. |" in told
    (moves,) = (line for line in told if line.startswith("| `moves` |"))
    assert moves.startswith("| `moves` | `frozenset[str]` | `{'DepthToSpace', 'Dropout', ")
