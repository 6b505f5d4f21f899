"""Text and pages made of views."""

from __future__ import annotations

import pytest
from rich.text import Text

from onnxq.views.shown_result import MOST_LINES, ShownResult, as_html, as_text


def test_long_views_are_cut_and_say_so() -> None:
    view = Text("\n".join(f"line {i}" for i in range(100)))
    lines = as_text(view).splitlines()
    assert len(lines) == MOST_LINES
    assert lines[-1] == "... and 76 more lines"
    assert as_text(Text("a\nb")) == "a\nb"


def test_pages_are_escaped() -> None:
    assert "&lt;script&gt;" in as_html(Text("<script>"))


def test_a_result_without_a_view_is_a_fault() -> None:
    with pytest.raises(TypeError, match="ShownResult has no view"):
        str(ShownResult())
