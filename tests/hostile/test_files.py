"""Each file that once broke onnxq ends in a clean error or a right result in every action."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import onnx
import pytest

from onnxq import cli
from onnxq.backend import Backend, backends
from onnxq.errors import OnnxqError
from onnxq.graph import load, save
from onnxq.proof.verify import verify
from onnxq.workflows.convert import convert
from tests.hostile import FOLDER

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no ../shared/hostile beside the repository"
)

FILES = sorted(path.name for path in FOLDER.glob("*.onnx"))
COMMANDS = ("inspect", "lint", "explain", "verify", "run", "convert")
BACKENDS = [b.name for b in backends().values() if isinstance(b, Backend) and b.writes]


def _words(command: str, path: Path, folder: Path) -> list[str]:
    proto = onnx.load(path, load_external_data=False)
    rest = {
        "inspect": [],
        "lint": ["-b", "onnxruntime"],
        "explain": [proto.graph.output[0].name, "-b", "onnxruntime"],
        "verify": [str(path), "--samples", "1"],
        "run": ["-p", "fold-constants,collect-qparams", "-o", str(folder / "made.onnx")],
        "convert": ["-b", "onnxruntime", "-o", str(folder), "--samples", "1"],
    }
    return [command, str(path), *rest[command]]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
def test_a_command_ends_in_one_message_or_a_result(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(_words(command, FOLDER / name, tmp_path))
    out, err = capsys.readouterr()
    assert "--debug" not in out + err  # which is what internal errors ask for
    assert "\x1b" not in out + err
    assert ended.value.code in (None, 0, 1, 2)
    if ended.value.code == 2:
        assert err.startswith("error: ")
        assert err.count("next: ") == 1
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FILES)
def test_what_can_be_loaded_is_saved_as_it_is(name: str, tmp_path: Path) -> None:
    with suppress(OnnxqError):  # refused by load, or by onnxruntime, which then runs neither
        save(load(FOLDER / name), tmp_path / "again.onnx")
        report = verify(FOLDER / name, tmp_path / "again.onnx", count=1)
        assert all(output.max == 0 for output in report.outputs)


@pytest.mark.parametrize("name", FILES)
def test_every_backend_refuses_it_or_converts_it(name: str) -> None:
    for backend in BACKENDS:
        with suppress(OnnxqError):
            done = convert(FOLDER / name, backend, count=1)
            assert done.proven or done.notes
