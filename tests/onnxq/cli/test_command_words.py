"""Commands of two words."""

from __future__ import annotations

import pytest
import typer

from onnxq.cli.command_words import CommandWords

app = typer.Typer(cls=CommandWords, rich_markup_mode=None)


@app.command()
def take(path: str) -> None:
    raise typer.Exit({"merge": 1, "./merge": 2, "x": 3}[path])


@app.command("take merge")
def merge(paths: list[str]) -> None:
    raise typer.Exit(10 + len(paths))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["take", "x"], 3),
        (["take", "./merge"], 2),
        (["take", "--", "merge"], 1),
        (["take", "merge", "a"], 11),
        (["take", "merge", "a", "b"], 12),
    ],
)
def test_the_longer_name_wins(words: list[str], code: int) -> None:
    assert app(words, standalone_mode=False) == code
