"""Every command and every piece of Python in the documents runs."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest

from onnxq import cli
from onnxq.cli.commands import app
from onnxq.graph import save
from onnxq.pipeline import Pipeline
from onnxq.workflows import demo
from tests.models.build import ops, parse

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str = "") -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    # All fences in order: the end of one block must not be taken for the start of the next.
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [body for kind, body in fences if kind == language]


def commands(document: str) -> list[str]:
    return [
        line.partition("#")[0].strip()
        for block in blocks(document)
        for line in block.splitlines()
        if line.startswith("onnxq ")
    ]


COMMANDS = commands("README.md")
DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the models the documents speak of."""
    network = demo.quantize(demo.build())
    for name in ("model.onnx", "a.onnx", "b.onnx", "m.onnx"):
        save(network, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(command)[1:])
    assert not ended.value.code, command


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_command(command: str, folder: Path) -> None:
    run(command)


def data_for_calibration() -> None:
    """What no command makes: samples, and pictures."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (the extra 'images')")
    random = np.random.default_rng(0)
    np.savez("data.npz", image=random.normal(size=(6, 3, 32, 32)).astype(np.float32))
    Path("photos").mkdir()
    for number in range(3):
        pixels = random.integers(0, 256, (40, 60, 3), np.uint8)
        image.fromarray(pixels).save(f"photos/{number}.jpg")


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if commands(d)])
def test_commands_of_a_document_run_in_order_in_a_folder_of_their_own(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if document == "docs/quantizing.md":
        data_for_calibration()
    for command in commands(document):
        run(command)
    for code in blocks(document, "python"):
        exec(compile(code, document, "exec"), {})


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
    shown = [shlex.split(c) for c in (*COMMANDS, *commands("docs/quantizing.md"))]
    named = {" ".join(words[1:3]) for words in shown} | {words[1] for words in shown}
    assert named & known == known
    assert {words[1] for words in shown} <= known


def test_readme_python(folder: Path) -> None:
    code, _ = blocks("README.md", "python")
    image = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    names: dict[str, object] = {"data": [{"image": image}]}
    exec(compile(code, "README.md", "exec"), names)
    assert names["result"].proven
    assert (folder / "out").is_dir()


def test_readme_training(folder: Path) -> None:
    pytest.importorskip("torch", reason="the training side needs torch")
    _, code = blocks("README.md", "python")
    exec(compile(code, "README.md", "exec"), {})
    assert (folder / "trained.onnx").is_file()
    assert list((folder / "deployed").iterdir())


def test_readme_begins_with_the_two_commands() -> None:
    assert blocks("README.md")[0].split("\n")[:2] == ["make demo", "make test"]


def test_contributing_pass(folder: Path) -> None:
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
    assert set(groups) == {"onnxq.passes", "onnxq.backends", "onnxq.formats"}


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *DOCUMENTS]
)  # fmt: skip
def test_links_to_files_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
