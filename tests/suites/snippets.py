"""The snippets of a Markdown page, in order, and a folder in which they run."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from onnxq import cli
from onnxq.graph import save
from onnxq.workflows import demo

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")),
]
SHELL = ("", "bash")
"""Fences whose lines are commands; `text` is for what cannot run here, such as vendors' tools."""


class Snippet(NamedTuple):
    """A fenced block."""

    language: str
    code: str


def snippets(page: str) -> list[Snippet]:
    """All fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    # All fences in order: the end of one block must not be taken for the start of the next.
    found = re.findall(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [Snippet(language, code) for _, language, code in found]


def blocks(page: str, language: str = "") -> list[str]:
    """The blocks in one language."""
    return [each.code for each in snippets(page) if each.language == language]


def commands_in(code: str) -> Iterator[str]:
    """The onnxq commands of a block, without comments."""
    for line in code.replace("\\\n", " ").splitlines():
        if line.strip().startswith("onnxq "):
            yield line.partition(" #")[0].strip()


def commands(page: str) -> list[str]:
    """The onnxq commands of a page."""
    return [c for each in snippets(page) if each.language in SHELL for c in commands_in(each.code)]


def runs(page: str) -> bool:
    """Whether the page has something to run.

    Pages with blocks of `sh` make files and packages: `test_extending.py` follows them.
    """
    return not blocks(page, "sh") and bool(commands(page) or blocks(page, "python"))


def needs_torch(page: str) -> bool:
    """Whether one of its snippets imports torch."""
    return any(
        re.search(r"^ *(import|from) torch", c, re.MULTILINE) for c in blocks(page, "python")
    )


def furnish(folder: Path, shown: Path) -> None:
    """Put the files that pages speak of into `folder`: models, data and pictures.

    `shown`: what `onnxq demo` wrote.
    """
    for name in ("model.onnx", "a.onnx", "b.onnx", "m.onnx"):
        shutil.copy(shown / "demo.onnx", folder / name)
    save(demo.build(), folder / "float.onnx")
    random = np.random.default_rng(0)
    np.savez(folder / "data.npz", image=random.normal(size=(6, 3, 32, 32)).astype(np.float32))
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (the extra 'images')")
    (folder / "photos").mkdir()
    for number in range(3):
        pixels = random.integers(0, 256, (40, 60, 3), np.uint8)
        image.fromarray(pixels).save(folder / "photos" / f"{number}.jpg")


def run_command(command: str, shown: Path) -> None:
    """Run one command; what `onnxq demo` writes is copied from `shown`."""
    words = shlex.split(command)[1:]
    if words[0] == "demo" and "--train" not in words:
        target = words[words.index("-o") + 1] if "-o" in words else "onnxq-demo"
        shutil.copytree(shown, target, dirs_exist_ok=True)
        return
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert not ended.value.code, command


def run_page(page: str, shown: Path) -> dict[str, object]:
    """Run all snippets of a page in order; returns the names that its Python made."""
    names: dict[str, object] = {"__name__": "page"}
    for language, code in snippets(page):
        if language in SHELL:
            for command in commands_in(code):
                run_command(command, shown)
        elif language == "python":
            exec(compile(code, page, "exec", dont_inherit=True), names)
    return names
