"""What is expected of a tool on Unix, and of a Python package."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import onnxq
from onnxq import cli
from onnxq.backend import find_backend
from onnxq.errors import OnnxqError
from onnxq.graph import load, save
from onnxq.quant.qtypes import qtype
from tests.hostile import FOLDER
from tests.models.networks import quantized

ROOT = Path(__file__).parents[2]

# -- processes ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("manners") / "net.onnx"
    save(quantized("conv1d", find_backend("onnxruntime")), path)
    return path


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "onnxq", *map(str, words)]


def test_a_pipe_that_is_closed_is_no_failed_proof(network: Path, tmp_path: Path) -> None:
    """`onnxq convert ... | head -1`: 0, or what a shell calls 141."""
    words = ("convert", network, "-b", "onnxruntime", "-o", tmp_path / "out", "--explain")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command(*words), stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")
    assert (tmp_path / "out" / "net_qdq.onnx").is_file()  # written before it was told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [("--version",), ("--help",), ("formats",), ("passes", "--json")])
def test_a_full_output_device_is_one_error(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*words), stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: cannot write to standard output (No space left on device)",
        "  next: free some disk space, or send the output elsewhere",
    ]


def test_a_closed_stream_is_no_room_for_files(network: Path, tmp_path: Path) -> None:
    """`>&-`: the next file that is opened must not become standard output."""
    script = tmp_path / "closed.sh"
    script.write_text('exec "$@" >&- 2>&-\n', encoding="utf-8")
    words = command("run", network, "-p", "to-qdq", "-o", tmp_path / "n.onnx")
    done = subprocess.run(["sh", str(script), *words], cwd=ROOT, check=False)
    assert done.returncode == 0
    assert load(tmp_path / "n.onnx").nodes("QuantizeLinear")


INTERRUPTED = """
import os, signal, sys

# What runs in the background of a script starts with Ctrl-C ignored, these tests perhaps, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
moment, seen, begun = int(sys.argv[1]), 0, False

def hook(event, arguments):
    global seen, begun
    begun = begun or (event == "import" and arguments[0] == "onnxq.dialects")
    seen += begun
    if begun and seen == moment:
        os.kill(os.getpid(), signal.SIGINT)

sys.argv = ["onnxq", *sys.argv[2:]]
sys.addaudithook(hook)
from onnxq.cli import main
try:
    main()
finally:
    if not moment:
        os.write(2, str(seen).encode())
"""
"""Ctrl-C at the n-th thing that Python audits (imports, opened files ...) from the first import on
that takes its time; with 0 no Ctrl-C, but how many there are."""


def test_an_interrupt_at_any_moment_is_130_and_silent(network: Path, tmp_path: Path) -> None:
    # Compiled code of its own: how much is imported from source decides how many moments there are.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(moment: int) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", INTERRUPTED, str(moment), "inspect", str(network)]
        return subprocess.run(
            words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
        )

    run(0)
    whole = run(0)
    assert whole.returncode == 0
    moments = int(whole.stderr)
    assert moments > 1000
    for part in range(6):
        done = run(1 + part * (moments - 1) // 6)
        assert (done.returncode, done.stderr) == (130, ""), part
        assert done.stdout in ("", whole.stdout)


# -- names on the screen ------------------------------------------------------------------------

NAMES = {
    "escape": "\x1b]0;pwned\x07\x1b[2J\x1b[31m",
    "C1": "\x9b31m\x85",
    "delete": "\x7f\b\r",
    "bidi": "\u202e\u2066\u200f",
    "lines": "\nerror: proven\n\u2028",
    "markup": "[red][/nope]:smile:",
}


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]):
    """Run a command; what it printed on both streams, in which nothing may act."""

    def run(*words: object) -> str:
        with pytest.raises(SystemExit):
            cli.main([str(w) for w in words])
        out, err = capfd.readouterr()
        assert (out + err).replace("\n", "").isprintable(), words
        return out + err

    return run


def commands(path: Path, tensor: str, folder: Path) -> list[tuple[object, ...]]:
    return [
        ("inspect", path),
        ("lint", path, "-b", "onnxruntime"),
        ("lint", path, "-b", "tensorrt"),
        ("explain", path, tensor, "-b", "onnxruntime"),
        ("explain", path, tensor + "?", "-b", "onnxruntime"),
        ("verify", path, path, "--per-layer"),
        ("convert", path, "-b", "onnxruntime", "-o", folder / "ort", "--explain"),
        ("convert", path, "-b", "vitis", "-o", folder / "vitis", "--explain"),
        ("encodings", path, "-f", "aimet-1.0.0", "-o", folder / "beside", "--explain"),
        ("run", path, "-p", "to-qdq", "-o", folder / "n.onnx", "--explain"),
        ("inspect", path, "--" + tensor),
    ]


@pytest.mark.parametrize("kind", NAMES)
def test_no_name_acts_on_the_screen(kind: str, tmp_path: Path, told) -> None:
    odd = NAMES[kind]
    model = quantized("conv1d", find_backend("onnxruntime"))
    for node in model.nodes():
        node.name += odd
        for tensor in node.outputs:
            tensor.name += odd
    model.graph.inputs[0].name = name = "in" + odd
    model.header.producer_name = odd
    path = tmp_path / "odd.onnx"
    save(model, path)
    shown = odd.encode("unicode_escape").decode() if kind != "markup" else odd
    everything = "".join(told(*words) for words in commands(path, name, tmp_path))
    assert everything.replace("\n", "").count(shown) > 5
    assert "\nerror: proven" not in everything
    document = json.loads(told("inspect", path, "--json"))
    assert name in document["inputs"]


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no ../shared/hostile beside the repository")
@pytest.mark.parametrize("file", ["esc.onnx", "esc2.onnx"])
def test_the_files_that_wrote_on_the_screen(file: str, tmp_path: Path, told) -> None:
    everything = "".join(told(*w) for w in commands(FOLDER / file, "in\x1b[2J", tmp_path))
    assert r"\x1b[" in everything


# -- Python -------------------------------------------------------------------------------------


WRONG = [None, 7, 3.5, b"x", object(), {}, ["a"]]


def calls(network: Path) -> dict[str, Callable[[object], object]]:
    """Every public function, by function and parameter, with the others as they should be."""
    model = load(network)
    done = onnxq.convert(model, "onnxruntime", verify=False)
    row = {"tensor": "x", "qtype": qtype("int8"), "scale": 1.0, "zero_point": 0}
    return {
        "load path": onnxq.load,
        "save model": lambda x: onnxq.save(x, network.with_name("n.onnx")),
        "save path": lambda x: onnxq.save(model, x),
        "from_proto proto": onnxq.from_proto,
        "convert source": lambda x: onnxq.convert(x, "onnxruntime"),
        "convert backend": lambda x: onnxq.convert(model, x),
        "convert count": lambda x: onnxq.convert(model, "onnxruntime", count="7" if x == 7 else x),
        "convert data": lambda x: onnxq.convert(model, "onnxruntime", data=x or 7),
        "convert progress": lambda x: onnxq.convert(model, "onnxruntime", progress=x),
        "convert encodings": lambda x: onnxq.convert(model, "onnxruntime", encodings=x or 7),
        "Conversion.save folder": done.save,
        "verify a": lambda x: onnxq.verify(x, model),
        "verify b": lambda x: onnxq.verify(model, x),
        "verify sessions": lambda x: onnxq.verify(model, model, sessions=x),
        "Pipeline steps": onnxq.Pipeline,
        "Pipeline.parse text": onnxq.Pipeline.parse,
        "Pipeline.run model": lambda x: onnxq.Pipeline().run(x),
        "QParamTable rows": onnxq.QParamTable,
        "QParamTable.loads text": onnxq.QParamTable.loads,
        "QParams tensor": lambda x: onnxq.QParams(**row | {"tensor": x}),
        "QParams qtype": lambda x: onnxq.QParams(**row | {"qtype": x}),
        "QParams scale": lambda x: onnxq.QParams(**row | {"scale": [x, "a"]}),
    }


def test_wrong_types_are_told_with_the_parameter(network: Path) -> None:
    for name, call in calls(network).items():
        for wrong in WRONG:
            with pytest.raises((TypeError, OnnxqError)) as failed:
                call(wrong)
            if failed.type is TypeError:
                assert name.split()[1] in str(failed.value), (name, wrong)


def test_models_can_be_copied(network: Path) -> None:
    """`copy.deepcopy` followed the links of the graph without end; see also test_copies.py."""
    model = load(network)
    twin = copy.deepcopy(model)
    twin.nodes()[0].name = "another"
    assert model.nodes()[0].name != "another"
    assert [n.op for n in twin.nodes()] == [n.op for n in model.nodes()]
