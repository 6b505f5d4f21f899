"""The pages that teach to extend onnxq, followed word by word in a folder of one's own."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("torch", reason="the training side needs torch")

from onnxq import cli
from tests.torch_bridge import registries

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "plugin_example" / "src" / "mychip_onnxq"
PAGES = (
    "extend-algorithm",
    "extend-backend",
    "extend-format",
    "extend-lint",
    "extend-observer",
    "extend-pass",
    "extend-pattern",
)
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """One block of a page: a file to save, commands to type, or what they print."""

    kind: str
    name: str
    text: str


def steps(page: str) -> Iterator[Step]:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    end = 0
    for block in _FENCE.finditer(text):
        before = text[end : block.start()].strip().rpartition("\n\n")[2]
        named = re.search(r"[Ss]ave (?:this|it) as `([\w./]+)`", before)
        end = block.end()
        yield Step(block[1], named[1] if named else "", block[2])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in; what it registers and imports is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with registries.restored():
        yield tmp_path
    forget_modules(tmp_path)


def forget_modules(folder: Path) -> None:
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").parent == folder:
            del sys.modules[name]


def install(folder: Path) -> None:
    """What pip writes for other programs to find; the modules are in the folder already.

    `test_plugin.py` installs a package with pip itself.
    """
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def typed(command: str, folder: Path) -> None:
    """Do what a shell would do; each command starts without what another one imported."""
    program, *words = shlex.split(command)
    if program == "pip":
        assert words == ["install", "."]
        install(folder)
        return
    forget_modules(folder)
    with registries.restored():
        if program == "python":
            (script,) = words
            runpy.run_path(script, run_name="__main__")
        else:
            assert program == "onnxq"
            with pytest.raises(SystemExit) as ended:
                cli.main(words)
            assert not ended.value.code, command


@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_word_by_word(page: str, folder: Path) -> None:
    printed = ""
    shown = 0
    for step in steps(page):
        if step.kind == "sh":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                for line in step.text.splitlines():
                    typed(line, folder)
            printed = out.getvalue()
        elif step.kind == "text":
            assert printed == step.text
            shown += 1
        else:
            assert step.kind in ("python", "toml")
            assert step.name, f"no file name before: {step.text[:60]}"
            (folder / step.name).write_text(step.text, encoding="utf-8")
    assert shown
    if page == "extend-backend":
        assert "tinychip" in listing()


def listing() -> str:
    out = io.StringIO()
    with registries.restored(), contextlib.redirect_stdout(out), pytest.raises(SystemExit):
        cli.main(["backends"])
    return out.getvalue()


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("extend-algorithm", "ewgs.py"),
        ("extend-observer", "median_minmax.py"),
        ("extend-pattern", "causal_conv.py"),
    ],
)
def test_a_page_shows_the_file_of_the_example_package(page: str, name: str) -> None:
    (shown,) = (step.text for step in steps(page) if step.name == name)
    assert shown == (EXAMPLE / name).read_text(encoding="utf-8")
