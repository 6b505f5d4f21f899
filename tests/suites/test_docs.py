"""Every command and every piece of Python in the documents runs."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from onnxq import cli
from onnxq.cli import demo
from onnxq.cli.commands import app
from onnxq.pipeline import Pipeline
from tests.models.build import ops, parse
from tests.suites.snippets import (
    PAGES,
    ROOT,
    SHELL,
    blocks,
    commands,
    commands_in,
    furnish,
    needs_torch,
    run_page,
    runs,
    snippets,
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `onnxq demo` writes, of a network with few channels."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_WIDTH", 16)
        patch.setattr(demo, "_SECONDS", 0.05)
        with pytest.raises(SystemExit) as ended:
            cli.main(["demo", "-o", str(folder)])
    assert not ended.value.code
    return folder


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's exporter
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("page", [*filter(runs, PAGES)])
def test_snippets_of_a_page_run_in_order_in_a_folder_of_their_own(
    page: str, shown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if needs_torch(page):
        pytest.importorskip("torch", reason="the training side needs torch")
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path, shown)
    names = run_page(page, shown)
    if page == "README.md":
        assert names["done"].proven
        assert (tmp_path / "ov").is_dir()
        assert list((tmp_path / "deployed").iterdir())


@pytest.mark.parametrize("page", PAGES)
def test_a_shell_snippet_has_nothing_that_is_not_run(page: str) -> None:
    """Commands of other programs are in fences of another language, such as `text`."""
    for language, code in snippets(page):
        if language in SHELL:
            lines = [line for line in code.replace("\\\n", " ").splitlines() if line.strip()]
            foreign = [line for line in lines if not line.lstrip().startswith(("#", "onnxq "))]
            assert not foreign or not list(commands_in(code)), foreign
            assert language != "bash" or not foreign, foreign


def test_migration_shows_every_way() -> None:
    text = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    shown = " ".join(commands("docs/migration.md"))
    for word in ("clip_ranges.json", "calibration.cache", "to-qonnx", "to-qoperator", "to-mqbench"):
        assert word in shown
    for version in ("aimet-0.6.1", "aimet-1.0.0", "aimet-2.0.0", "mqbench-snpe"):
        assert version in shown
    assert "--allow-missing" in text


def test_every_command_is_shown() -> None:
    known = {c.name or c.callback.__name__ for c in app.registered_commands}
    shown = [shlex.split(c) for page in PAGES for c in commands(page)]
    named = {" ".join(words[1:3]) for words in shown} | {words[1] for words in shown}
    assert named & known == known
    assert {words[1] for words in shown} <= known


def test_readme_begins_with_the_demonstration() -> None:
    assert blocks("README.md", "text")[0].startswith("make demo")


@pytest.mark.parametrize("title", ["Quantize your own ONNX model", "Train your own torch model"])
def test_readme_shows_both_ways_in_ten_lines(title: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^```\w+\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert shown
    lines = [line for line in "".join(shown).splitlines() if line.strip()]
    assert len(lines) <= 10


def test_contributing_pass() -> None:
    (code,) = blocks("CONTRIBUTING.md", "python")
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    model = parse(
        """g (float[2,3] x) => (float[3,2] y) {
            a = Transpose<perm=[0,1]>(x)
            y = Transpose<perm=[1,0]>(a)
        }"""
    )
    result = Pipeline(names["DropIdleTranspose"]()).run(model)
    assert ops(result.model) == ["Transpose"]
    assert [s.reason for s in result.traces[0].skips] == ["it moves axes"]


def test_contributing_entry_points() -> None:
    (text,) = blocks("CONTRIBUTING.md", "toml")
    groups = tomllib.loads(text)["project"]["entry-points"]
    names = ("passes", "backends", "formats", "algorithms", "observers", "patterns")
    assert set(groups) == {f"onnxq.{name}" for name in names}


@pytest.mark.parametrize("document", [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
