"""`onnxq bench` as a user meets it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from onnxq.graph import save
from onnxq.timing import child
from onnxq.timing.rounds import Spread
from onnxq.timing.survey import FloatNode, Survey
from onnxq.views.bench import latencies
from onnxq.workflows import demo
from onnxq.workflows.bench import Bench, Latency
from tests.models.build import parse
from tests.onnxq.conftest import Run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    save(parse("g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }"), path)
    return path


def test_the_table(onnxq: Run, model: Path) -> None:
    code, out, err = onnxq("bench", model, model, "--seconds", 0.02)
    assert (code, err) == (0, "")
    assert "Latency, 1 thread" in out
    assert "0 of 1" in out
    assert "1.00" in out


def test_json(onnxq: Run, model: Path, tmp_path: Path) -> None:
    save(demo.quantize(demo.build()), tmp_path / "q.onnx")
    words = ("--seconds", 0.02, "--threads", 2, "--json")
    code, out, _ = onnxq("bench", model, tmp_path / "q.onnx", *words)
    assert code == 0
    document = json.loads(out)
    assert document["threads"] == 2
    first, second = document["models"]
    assert first["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert second["own_inputs"]
    assert second["milliseconds"]["low"] > 0
    assert second["profile"]["float_nodes"][0]["share"] > 0


def test_a_model_that_dies_is_named(
    onnxq: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "WORKER", "tests.models.dying_worker")
    bad = tmp_path / "aborts-in-open.onnx"
    bad.write_bytes(model.read_bytes())
    code, out, _ = onnxq("bench", model, bad, "--seconds", 0.02)
    assert code == 1
    assert "died" in out
    assert f"{bad}: onnxruntime ended its process (SIGABRT) while loading" in out.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("{t}/none.onnx",), "none.onnx"),
        (("{m}", "{t}/text.onnx"), "not an ONNX model"),
        (("{m}", "{t}/my.onnx"), "my.onnx"),
        (("{m}", "--threads", "0"), "--threads"),
        (("{m}", "--seconds", "0"), "--seconds"),
        (("{m}", "--data", "{t}/none.npz"), "none.npz"),
        ((), "Missing argument 'models'"),
    ],
)
def test_bad_usage(
    onnxq: Run, model: Path, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    save(parse("g (float[3] x) => (float[3] y) { y = NoSuch(x) }"), tmp_path / "my.onnx")
    filled = [word.format(m=model, t=tmp_path) for word in words]
    code, _, err = onnxq("bench", *filled)
    assert code == 2
    assert text in err


def test_tables_fit_100_columns_whatever_is_in_them() -> None:
    node = FloatNode("a/very/long/" * 20, "SkipLayerNormalization", 0.4, 0.1, (), (), "why " * 60)
    tiny = FloatNode("tiny", "Erf", 0.001, 0.0, ("Conv",), ("Add",), "")
    plain = FloatNode("plain", "Erf", 0.02, 0.0, ("QLinearConv",), ("QLinearAdd",), "")
    survey = Survey(
        {"integer": 1234, "float": 5678}, {"float": 0.5}, {}, 3, (node, plain, tiny), 30
    )
    spread = Spread(12345.678, 0.00012345, 99999.9)
    rows = (
        Latency("m" * 300, spread, spread, 12345678901, (), False, 3, 30, survey),
        Latency("dead", None, None, 10, (), False, 0, 0, None, failure="it died"),
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(latencies(Bench(rows, 2, 30, [])))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "2 threads, 30 rounds" in text
    assert "after QLinearConv before" in text
    assert "3 float islands with 30 operators; those not listed cost less: 28" in text
    assert "tiny" not in text
    assert "dead: it died" in text
