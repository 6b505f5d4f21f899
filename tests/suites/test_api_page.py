"""docs/api.md lists what `__all__` says, no more and no less."""

from __future__ import annotations

from pathlib import Path

from tests.suites.api_page import page


def test_the_page_is_up_to_date() -> None:
    written = Path(__file__).parents[2] / "docs" / "api.md"
    assert written.read_text(encoding="utf-8") == page()
