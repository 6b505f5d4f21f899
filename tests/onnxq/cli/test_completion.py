"""Completion, asked for as a shell asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnxq.backend import backends
from onnxq.cli import completion, main
from onnxq.side_files.side_file import formats


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command line under its own name, as pip installs it."""
    path = tmp_path_factory.mktemp("bin") / "onnxq"
    path.write_text(f"#!{sys.executable}\nfrom onnxq.cli import main\nmain()\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def offered(program: Path, *words: str) -> list[str]:
    """What bash would show for the last of the words."""
    asked = {
        "_ONNXQ_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["onnxq", *words]),
        "COMP_CWORD": str(len(words)),
        "PYTHONPATH": str(Path(__file__).parents[3]),
    }
    done = subprocess.run(
        [program], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return done.stdout.split()


def test_backends_are_offered_after_their_option(program: Path) -> None:
    assert offered(program, "convert", "m.onnx", "--backend", "") == list(backends())
    assert offered(program, "quantize", "--backend", "tensor") == ["tensorrt", "tensorrt-nlp"]


def test_variants_are_those_of_the_backend(program: Path) -> None:
    words = ("convert", "m.onnx", "--backend", "onnxruntime", "--variant", "avx")
    assert offered(program, *words) == ["avx2"]
    assert offered(program, "convert", "--backend", "stpu", "--variant", "avx") == []


def test_commands_are_offered(program: Path) -> None:
    assert offered(program, "quan") == ["quantize"]


def test_formats_and_passes() -> None:
    assert completion.format_names("") == list(formats())
    assert completion.pass_names("drop-identity,fold-batch") == ["drop-identity,fold-batch-norm"]


def test_help_does_not_list_the_options_that_set_it_up(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "completion" not in capsys.readouterr().out
