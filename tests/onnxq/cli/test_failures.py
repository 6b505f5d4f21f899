"""What the command line says and does where something failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxq.cli import commands
from onnxq.graph import save
from onnxq.running import sessions
from onnxq.workflows import demo
from tests.models.build import parse, quantize
from tests.onnxq.conftest import Run


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    save(demo.quantize(demo.build()), path)
    return path


def test_what_is_not_proven_does_not_replace_what_is(
    onnxq: Run, network: Path, tmp_path: Path, spoil: Callable[[], None]
) -> None:
    out = tmp_path / "out"
    words = ("convert", network, "-b", "onnxruntime", "-o", out)
    assert onnxq(*words)[0] == 0
    proven = (out / "net_qdq.onnx").read_bytes()
    spoil()
    code, told, _ = onnxq(*words)
    assert code == 1
    assert "unproven" in told
    assert "itself is unchanged" in told
    assert (out / "net_qdq.onnx").read_bytes() == proven
    assert (out / "unproven" / "net_qdq.onnx").read_bytes() != proven
    document = json.loads(onnxq(*words, "--json")[1])
    assert document["files"] == [str(out / "unproven" / "net_qdq.onnx")]


@pytest.mark.parametrize(
    ("words", "pattern"),
    [(("-b", "nope"), "backend"), (("-b", "snpe", "--variant", "nope"), "variant")],
)
def test_errors_are_one_json_document(
    onnxq: Run, network: Path, tmp_path: Path, words: tuple[str, ...], pattern: str
) -> None:
    code, out, err = onnxq("convert", network, *words, "-o", tmp_path / "out", "--json")
    document = json.loads(out)
    assert code == 2
    assert document.keys() == {"error", "next"}
    assert pattern in document["error"]
    assert document["error"] in err
    assert document["next"] in err


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (("convert", "--json"), "Missing argument 'model'"),
        (("convert", "m.onnx", "-o", "out", "--json"), "Missing option '--backend'"),
        (("inspect", "m.onnx", "--json", "--nope"), "No such option: --nope"),
        (("inspect", "m.onnx", "more", "--json"), "unexpected extra argument"),
        (("verify", "a", "b", "--json", "--session", "fast"), "Invalid value for '--session'"),
        (("verify", "a", "b", "--json", "--samples", "0"), "Invalid value for '--samples'"),
        (("convrt", "--json"), "No such command 'convrt'"),
        (("--json",), "No such option: --json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_is_one_json_document(onnxq: Run, words: tuple[str, ...], pattern: str) -> None:
    code, out, err = onnxq(*words)
    assert code == 2
    document = json.loads(out)
    assert document.keys() == {"error", "next"}
    assert pattern in document["error"]
    assert "--help" in document["next"]
    assert "Usage:" in err
    assert document["error"] in err
    code, out, again = onnxq(*(word for word in words if word != "--json"), "--nope")
    assert (code, out) == (2, "")
    assert "Usage:" in again


def test_a_fault_of_the_program_is_one_json_document(
    onnxq: Run, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("by design")

    monkeypatch.setattr(commands, "summarize", broken)
    code, out, _ = onnxq("inspect", network, "--json")
    assert (code, json.loads(out)["error"]) == (2, "RuntimeError: by design")


def test_a_refused_session_is_called_so(
    onnxq: Run, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sessions.session.__globals__, "deployed", lambda source, taps=(): sessions.reference(source)
    )
    code, out, _ = onnxq("convert", network, "-b", "onnxruntime", "-o", tmp_path / "out")
    assert code == 1
    assert "(deployed: refused)" in out
    assert "not run" in out
    assert "onnxruntime rejects the optimised model" in out.replace("\n", " ")
    assert "do not compute" not in out


def test_nan_of_the_source_is_not_blamed_on_the_files(onnxq: Run, tmp_path: Path) -> None:
    model = parse(
        "g (float[1,8] x) => (float[1,8] y) <float z = {0}> { m = Mul(x, z) y = Div(m, m) }"
    )
    save(quantize(model, "x"), tmp_path / "net.onnx")
    code, out, _ = onnxq("convert", tmp_path / "net.onnx", "-b", "tensorrt", "-o", tmp_path / "out")
    assert code == 1
    text = out.replace("\n", " ")
    assert "the source model itself computes NaN at 'y'" in text
    assert "do not compute" not in text


def test_a_code_that_training_lacked_is_accounted_for(onnxq: Run, tmp_path: Path) -> None:
    """Random inputs drive the sum far beyond -0.127..0.127, and TensorRT has the code -128."""
    model = parse(
        "g (float[1,2,4,4] x) => (float[1,1,4,4] y) "
        "<float[1,2,1,1] w = {0.5, 0.25}, float[1,1,1,1] v = {1}> { a = Conv(x, w) y = Conv(a, v) }"
    )
    path = tmp_path / "narrow.onnx"
    save(quantize(model, "a", scale=np.float32(0.001), lo=-127, hi=127), path)
    words = ("convert", path, "-b", "tensorrt", "-o", tmp_path / "out")
    code, out, err = onnxq(*words)
    assert code == 0
    told = " ".join((out + err).split())
    assert "widen-range changes what the model computes" in told
    assert "the files are proven, but the network was changed: see the cost" in told
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=np.linspace(-0.1, 0.1, 32, dtype=np.float32).reshape(1, 2, 4, 4))
    code, out, err = onnxq(*words, "--data", inputs)
    assert code == 0
    assert "the network was changed" not in out + err


def test_a_code_that_training_lacked_may_cost_too_much(onnxq: Run, tmp_path: Path) -> None:
    """Where the outputs span one step, another one is a lot."""
    model = parse("g (float[1,8] x) => (float[1,8] y) { y = Neg(x) }")
    path, inputs = tmp_path / "narrow.onnx", tmp_path / "inputs.npz"
    save(quantize(model, "x", scale=np.float32(1), lo=-127, hi=127), path)
    np.savez(inputs, x=np.array([[-140, -140, -140, -140, -126, -126, -126, -126]], np.float32))
    words = ("convert", path, "-b", "tensorrt", "-o", tmp_path / "out", "--data", inputs)
    code, out, err = onnxq(*words)
    assert code == 1
    told = " ".join((out + err).split())
    assert "tensorrt has one code more than 1 activations were trained with" in told
    assert "--data" in told
