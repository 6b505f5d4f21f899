"""`onnxq quantize` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq.running.cpu import Cpu
from onnxq.workflows import reported
from tests.models.networks import NETWORKS, samples
from tests.onnxq.conftest import Run


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(NETWORKS["conv1d"](), path)
    np.savez(tmp_path / "data.npz", x=np.concatenate([f["x"] for f in samples("conv1d", 12)]))
    return path


def test_files_proof_and_cost(net: Path, tmp_path: Path, onnxq: Run) -> None:
    folder, data = tmp_path / "out", tmp_path / "data.npz"
    code, out, err = onnxq("quantize", net, "-b", "onnxruntime", "--data", data, "-o", folder)
    assert code == 0, err
    assert "written to" in out
    assert ", proven" in out
    assert "Cost of quantization" in out
    assert "from 12 samples" in out
    assert sorted(p.name for p in folder.iterdir()) == ["net_qdq.onnx", "net_recipe.json"]


@pytest.mark.parametrize(("feature", "concerned"), [("avx2", True), ("avx512_vnni", False)])
def test_saturation_is_told_where_this_cpu_saturates(
    net: Path,
    tmp_path: Path,
    onnxq: Run,
    monkeypatch: pytest.MonkeyPatch,
    feature: str,
    concerned: bool,
) -> None:
    cpu = Cpu("", "x86_64", frozenset({feature}))
    monkeypatch.setattr(reported, "this_cpu", lambda: cpu)
    words = ("--data", tmp_path / "data.npz", "-o", tmp_path / "out", "--no-verify")
    words += ("--method", "min-max")
    code, out, _ = onnxq("quantize", net, "-b", "onnxruntime", *words)
    assert code == 0
    assert ("unsafe on AVX2" in " ".join(out.split())) == concerned
    found = json.loads(onnxq("quantize", net, "-b", "onnxruntime", *words, "--json")[1])
    assert any("unsafe on AVX2" in each["message"] for each in found["findings"])


def test_a_recipe_and_json(net: Path, tmp_path: Path, onnxq: Run) -> None:
    data = tmp_path / "data.npz"
    first = ("--data", data, "-o", tmp_path / "a", "--keep-float", "1", "--method", "mse", "--json")
    code, out, err = onnxq("quantize", net, "-b", "onnxruntime", *first)
    assert code == 0, err
    document = json.loads(out)
    assert document["proven"] is True
    assert document["recipe"]["method"] == "mse"
    again = ("--recipe", tmp_path / "a" / "net_recipe.json", "--data", data, "-o", tmp_path / "b")
    assert onnxq("quantize", net, *again)[0] == 0
    for name in ("net_qdq.onnx", "net_recipe.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_goal_shows_what_was_tried(net: Path, tmp_path: Path, onnxq: Run) -> None:
    metric = tmp_path / "metric.py"
    metric.write_text(
        "import numpy as np\n"
        f"xs = np.load({str(tmp_path / 'data.npz')!r})['x']\n"
        "def rate(predict):\n"
        "    return float(np.mean([predict({'x': x[None]})['y'].mean() for x in xs]))\n",
        encoding="utf-8",
    )
    more = ("--metric", f"{metric}:rate", "--max-drop", "10", "--explain")
    more += ("-o", str(tmp_path / "out"), "--data", str(tmp_path / "data.npz"))
    code, out, err = onnxq("quantize", net, "-b", "onnxruntime", *more)
    assert code == 0, err
    assert "Float layers" in out
    assert "reached" in out
    assert "metric" in out
    assert "extremes of each channel" in out  # where ranges come from


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "ranges of activations need data"),
        (("--metric", "nothing"), "names no function"),
        (("--metric", "no_such_module:f"), "cannot be loaded"),
        (("--settings", "{tmp}/no.json"), "no.json"),
        (("--settings", "{tmp}/cut.json"), "cut.json': not a list of settings"),
        (("--settings", "{tmp}/bits.json"), "bits.json': rule 1 of the settings ('Conv'): weight"),
        (("--recipe", "{tmp}/no.json"), "no.json"),
        (("--data", "{tmp}/empty"), "no .npy or .npz"),
        (("--data", "{tmp}/other.npz"), "no array for input 'x'"),
        (("--data", "{tmp}/shape.npz"), "shape [2, 3]"),
    ],
)
def test_bad_input(
    more: tuple[str, ...], words: str, net: Path, tmp_path: Path, onnxq: Run
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.json").write_text('[["Conv", ', encoding="utf-8")
    (tmp_path / "bits.json").write_text('[["Conv", {"weight_bits": 99}]]', encoding="utf-8")
    wrong = np.zeros((2, 4, 32), np.float32)
    np.savez(tmp_path / "other.npz", z=wrong, u=wrong)
    np.savez(tmp_path / "shape.npz", x=np.zeros((2, 3), np.float32))
    given = [part.format(tmp=tmp_path) for part in more]
    code, _, err = onnxq("quantize", net, "-b", "onnxruntime", "-o", tmp_path / "out", *given)
    assert code == 2
    assert words in err.replace("\n", " ")
    assert "next:" in err
    assert not (tmp_path / "out").exists()


def test_weights_alone(net: Path, tmp_path: Path, onnxq: Run) -> None:
    chosen = ("-b", "onnxruntime", "--variant", "weight-only")
    code, out, err = onnxq("quantize", net, *chosen, "-o", tmp_path / "a")
    assert code == 0, err
    assert "kB in float" in out
    assert "Cost of quantization" not in out
    data = ("--data", tmp_path / "data.npz", "-o", tmp_path / "b")
    code, out, err = onnxq("quantize", net, *chosen, *data)
    assert code == 0, err
    assert "measured on 8 samples" in out
    assert "ranges by" not in out
    code, _, err = onnxq("quantize", net, *chosen, "--rounding", "gptq", "-o", tmp_path / "c")
    assert code == 2
    assert "needs samples" in err


def test_an_interrupt_says_that_nothing_was_written(
    net: Path, tmp_path: Path, onnxq: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onnxq.cli.quantize.quantize", interrupted)
    words = ("-b", "onnxruntime", "--data", tmp_path / "data.npz", "-o", tmp_path / "out")
    code, _, err = onnxq("quantize", net, *words)
    assert code == 130
    assert "interrupted; nothing was written" in err
    assert not (tmp_path / "out").exists()


def test_the_cost_of_unproven_files_does_not_reassure(
    net: Path, tmp_path: Path, onnxq: Run, spoil: Callable[[], None]
) -> None:
    spoil()
    words = ("-b", "onnxruntime", "--data", tmp_path / "data.npz", "-o", tmp_path / "out")
    code, out, _ = onnxq("quantize", net, *words)
    assert code == 1
    told = " ".join(out.split())
    assert "Cost of quantization (in the reference session)" in told
    assert "in the reference session; the files are unproven" in told
