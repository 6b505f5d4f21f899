"""What is printed: printable, complete, aligned, and never markup."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from onnxq.views.screen import Screen, escaped, message, shown, shown_lines


def printed(view: object, width: int = 200) -> str:
    out = io.StringIO()
    Screen(file=out, width=width).print(view)
    return out.getvalue()


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("conv1/weight:0 Größe 重み", "conv1/weight:0 Größe 重み"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x7f\x85\x9b", r"\x7f\x85\x9b"),
        ("\u202eevil\u2066\u200f", r"\u202eevil\u2066\u200f"),
        ("\u2028\ud800", r"\u2028\ud800"),
        ("[red]x[/red] :smile:", "[red]x[/red] :smile:"),
    ],
)
def test_escapes(raw: str, safe: str) -> None:
    assert escaped(raw) == safe
    assert safe in printed(raw)
    assert safe in printed(shown(raw, "bold"))
    assert safe in printed(Text(raw)) or "\n" in raw or "\r" in raw  # rich drops the last


@given(st.text(st.characters(codec=None)))
def test_nothing_that_is_printed_acts(text: str) -> None:
    table = Table(title=text)
    table.add_column(text)
    table.add_row(shown(text, "red"))
    table.add_row(shown_lines([text, "second"]))
    table.add_row(Text(text))
    assert escaped(text).isprintable()
    for view in (text, shown(text), Text(text), table):
        assert printed(view).replace("\n", "").isprintable()


def test_a_message_keeps_its_own_lines() -> None:
    told = "one 'a\nerror: b' is wrong\n    and this\n  next: do"
    assert message(told) == "one 'a\\nerror: b' is wrong\n    and this\n  next: do"


def test_several_lines_are_those_that_were_given() -> None:
    assert shown_lines(["a\n  b", "c"]).plain == "a\\n  b\nc"


def test_escapes_leave_a_table_straight() -> None:
    table = Table("name", "value")
    for name in ("\x1b[2Jin", "x", "\u202e" * 9):
        table.add_row(shown(name), "1")
    lines = printed(table).splitlines()
    assert len(set(map(len, lines))) == 1
    assert any(r"\x1b[2Jin" in line for line in lines)


def test_markup_that_does_not_close_is_text() -> None:
    assert printed("[/nope] [bold]").startswith("[/nope] [bold]")
    table = Table(title="[/nope]")
    table.add_column("[/nope]")
    table.add_row("[/nope]")
    assert printed(table).count("[/nope]") == 3
