"""A package that adds to passes, backends, formats and training is installed by pip and used."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxq.reading import READERS
from tests.models.zoo_build import Build, channel_scale

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "plugin_example"
STEP = np.float32(0.03)


def install(source: Path, target: Path) -> None:
    """Build and install with pip, without fetching anything."""
    arguments = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *arguments, target, source],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert done.returncode == 0, done.stderr


def make_package(folder: Path, name: str, group: str, entry: str, module: str) -> Path:
    """The sources of a package of one module with one entry point."""
    package = name.replace("-", "_")
    folder.mkdir()
    (folder / f"{package}.py").write_text(module, encoding="utf-8")
    (folder / "pyproject.toml").write_text(
        f"""
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "1.0"
[project.entry-points."{group}"]
{entry} = "{package}:THING"
[tool.setuptools]
py-modules = ["{package}"]
""",
        encoding="utf-8",
    )
    return folder


def onnxq(
    *arguments: str | Path, plugins: tuple[Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (*plugins, ROOT)))
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "onnxq.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"},
    )


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON document on standard output of a command that succeeded."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_name(listing: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    assert len({entry["name"] for entry in listing}) == len(listing)
    return {entry["name"]: entry for entry in listing}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed; its sources are copied, since a build writes there."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")
    install(folder / "source", folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two plug-ins that cannot be imported."""
    folder = tmp_path_factory.mktemp("broken")
    for name, group, error in (
        ("sick-pass", "onnxq.passes", "raise RuntimeError('no licence: größe')\n"),
        ("sick-backend", "onnxq.backends", "import a_compiler_that_is_not_installed\n"),
    ):
        install(make_package(folder / name, name, group, name, error), folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conv -> Relu, quantized in int8, its nodes without names."""
    b = Build(opset=17, seed=3)
    weight = b.weight_values(4, 3, 3, 3)
    fake = b.qdq(b.init(weight, "weight"), channel_scale(weight, 0), axis=0)
    x = b.qdq(b.input("x", [1, 3, 6, 6]), STEP)
    proto = b.model(b.qdq(b.op("Relu", b.conv(x, 3, 4, weight=fake)), STEP, out="größe:0"))
    for node in proto.graph.node:
        node.name = ""
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(proto, path)
    return path


# -- a good plug-in -------------------------------------------------------------------------


def test_onnxq_does_not_know_the_plug_in_by_itself() -> None:
    assert "name-nodes" not in by_name(answer(onnxq("passes", "--json")))


def test_pass_is_listed_with_its_options(example: Path) -> None:
    known = by_name(answer(onnxq("passes", "--json", plugins=(example,))))
    assert {"to-qdq", "fold-batch-norm"} <= set(known)
    assert known["name-nodes"] == {
        "name": "name-nodes",
        "summary": "Name every node that has no name; mychip's profiler shows layers by name.",
        "exact": True,
        "options": [{"name": "prefix", "type": "str", "default": "layer", "required": False}],
    }


def test_backend_is_listed(example: Path) -> None:
    known = by_name(answer(onnxq("backends", "--json", plugins=(example,))))
    assert {"onnxruntime", "tensorrt"} <= set(known)
    chip = known["mychip"]
    assert chip["summary"].startswith("int8 symmetric QDQ with a name on every node")
    assert chip["pipeline"].startswith(",".join(READERS))
    assert chip["proof"] == "format"
    suffixes = [output["suffix"] for output in chip["outputs"]]
    assert suffixes == ["_mychip.onnx", "_clean.onnx", "_scales.csv"]


def test_pass_runs_from_the_text_form(example: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "named.onnx"
    line = "name-nodes{prefix='my layer'}"
    done = answer(onnxq("run", model, "-p", line, "-o", out, "--json", plugins=(example,)))
    assert done["pipeline"] == line
    before, after = onnx.load(model).graph, onnx.load(out).graph
    assert len(done["traces"][0]["rewrites"]) == len(before.node)
    names = [node.name for node in after.node]
    assert len(set(names)) == len(names)
    assert all(name.startswith("my layer.") for name in names)
    for node in after.node:
        node.name = ""
    assert list(after.node) == list(before.node)


def test_convert_for_the_backend_is_proven(example: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = answer(
        onnxq("convert", model, "--backend", "mychip", "-o", out, "--json", plugins=(example,))
    )
    assert done["backend"] == "mychip"
    assert done["proven"] is True
    # The model in both sessions, and the side file read back onto the clean model.
    assert len(done["proofs"]) == 3
    written = {"tiny_mychip.onnx", "tiny_clean.onnx", "tiny_scales.csv"}
    assert {path.name for path in out.iterdir()} == written
    assert {Path(name).name for name in done["files"]} == written

    qdq = onnx.load(out / "tiny_mychip.onnx")
    onnx.checker.check_model(qdq, full_check=True)
    assert all(node.name for node in qdq.graph.node)
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= {n.op_type for n in qdq.graph.node}
    clean = onnx.load(out / "tiny_clean.onnx")
    assert {node.op_type for node in clean.graph.node} == {"Conv", "Relu"}
    rows = list(csv.reader((out / "tiny_scales.csv").read_text(encoding="utf-8").splitlines()))
    assert rows[0] == ["tensor", "scale"]
    assert [float(scale) for _, scale in rows[1:]] == [float(STEP)] * 2


def test_lint_and_explain_know_the_backend_and_its_rule(example: Path, model: Path) -> None:
    found = answer(onnxq("lint", model, "--backend", "mychip", "--json", plugins=(example,)))
    rules = {finding["rule"]: finding for finding in found[0]["findings"]}
    assert "4 output channels" in rules["mychip-channels"]["message"]
    shown = onnxq("explain", model, "x", "--backend", "mychip", plugins=(example,))
    assert shown.returncode == 0, shown.stderr
    assert "mychip" in shown.stdout
    assert "int8" in shown.stdout


def test_side_files_of_the_plug_in_are_listed_told_and_read(
    example: Path, model: Path, tmp_path: Path
) -> None:
    formats = by_name(answer(onnxq("formats", "--json", plugins=(example,))))
    assert formats["mychip-scales"]["detection"] == "text whose first line is 'tensor,scale'"
    assert "aimet-1.0.0" in formats
    out = tmp_path / "out"
    arguments = ("encodings", model, "-f", "mychip-scales", "-o", out, "--json")
    done = answer(onnxq(*arguments, plugins=(example,)))
    assert done["proven"] is True
    clean, side = (Path(name) for name in done["files"])
    assert side.suffix == ".csv"
    again = answer(
        onnxq("inspect", clean, "--encodings", side, "--json", plugins=(example,))
    )  # fmt: skip
    assert again["notes"] == ["encodings read as mychip-scales"]
    scales = [row["scale"] for row in again["table"]["rows"]]
    assert scales == [float(STEP)] * 2
    assert onnxq("inspect", clean, "--encodings", side).returncode == 2, "not without the plug-in"


def test_unknown_backend_lists_the_plug_in_among_near_matches(
    example: Path, model: Path, tmp_path: Path
) -> None:
    done = onnxq("convert", model, "--backend", "mychp", "-o", tmp_path / "o", plugins=(example,))
    assert done.returncode == 2
    assert "unknown backend 'mychp'" in done.stderr
    assert "'mychip'" in done.stderr
    assert not (tmp_path / "o").exists()


# -- training with the plug-in --------------------------------------------------------------

TRAINING = """
import json, sys
import torch
import torch_bridge as tb
from mychip_onnxq.causal_conv import CausalConv1d
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = CausalConv1d(4, 8, 3), nn.BatchNorm1d(8)
        self.second, self.selu = CausalConv1d(8, 8, 3, dilation=2), nn.SELU()
        self.last = CausalConv1d(8, 8, 1)

    def forward(self, x):
        x = F.leaky_relu(self.norm(self.first(x)), 0.2)
        return self.last(self.selu(self.second(x)))


tb.register_op_kind(nn.SELU, "Selu")
torch.manual_seed(0)
net, x = Net(), torch.randn(8, 4, 20)
q = tb.prepare(net, "mychip", (x,))
with tb.calibrating(q):
    q(x)
tb.enable_quantization(q)
optimizer = torch.optim.SGD(q.parameters(), lr=0.05)
losses = []
for _ in range(20):
    loss = (q(x) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
state = q.state_dict()
again = tb.prepare(Net(), example_inputs=(x,), settings=tb.recipe(state))
again.load_state_dict(state)
print(json.dumps({
    "layers": {n: type(q.get_submodule(n)).__name__ for n in ("first", "second", "last")},
    "how": {row.tensor: row.how for row in q.onnxq_report.rows},
    "losses": losses,
    "same": torch.equal(again.eval()(x), q.eval()(x)),
    "proven": tb.deploy(q, (x,), sys.argv[1]).proven,
    "providers": [str(each).count("mychip-onnxq") for each in
                  (tb.ALGORITHMS, tb.OBSERVERS, tb.PATTERNS)],
}))
"""


def test_the_plug_in_is_trained_with_and_deployed(example: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the training side needs torch")
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TRAINING, out],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (example, ROOT)))},
    )
    told = answer(done)
    assert told["layers"] == {
        "first": "FusedQatCausalConv1d",
        "second": "QatCausalConv1d",
        "last": "QatCausalConv1d",
    }
    activation = "lsq from MedianMinMax"
    assert told["how"] == {
        **{f"{layer}.weight": "ewgs from MinMax" for layer in ("first", "second", "last")},
        **dict.fromkeys(("x", "first", "selu", "last"), activation),
    }
    assert told["losses"][-1] < told["losses"][0] / 2
    assert told["same"] is told["proven"] is True
    assert told["providers"] == [1, 1, 4]
    # The chip computes Selu in the layer before it: lint asks for no range in between, and explain
    # says so.
    (linted,) = answer(
        onnxq("lint", out / "model_mychip.onnx", "-b", "mychip", "--json", plugins=(example,))
    )
    assert linted["findings"] == []
    model = onnx.load(out / "model.onnx")
    (selu,) = (node for node in model.graph.node if node.op_type == "Selu")
    shown = onnxq("explain", out / "model.onnx", selu.input[0], "-b", "mychip", plugins=(example,))
    assert shown.returncode == 0, shown.stderr
    assert "Selu" in shown.stdout


# -- a broken plug-in -----------------------------------------------------------------------


def test_broken_plug_ins_are_shown_in_the_listings(broken: Path) -> None:
    passes = by_name(answer(onnxq("passes", "--json", plugins=(broken,))))
    assert passes["sick-pass"] == {
        "name": "sick-pass",
        "error": "RuntimeError: no licence: größe",
    }
    assert "summary" in passes["to-qdq"]
    backends = by_name(answer(onnxq("backends", "--json", plugins=(broken,))))
    assert "a_compiler_that_is_not_installed" in backends["sick-backend"]["error"]
    assert "summary" in backends["onnxruntime"]
    for command, name in (("passes", "sick-pass"), ("backends", "sick-backend")):
        shown = onnxq(command, plugins=(broken,))
        assert shown.returncode == 0, shown.stderr
        assert name in shown.stdout


def test_broken_plug_ins_disturb_nobody_else(broken: Path, model: Path, tmp_path: Path) -> None:
    arguments = ("convert", model, "--backend", "onnxruntime", "-o", tmp_path / "o", "--json")
    assert answer(onnxq(*arguments, plugins=(broken,)))["proven"] is True


def test_a_broken_plug_in_is_an_error_when_asked_for(
    broken: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o.onnx"
    done = onnxq("run", model, "-p", "sick-pass", "-o", out, plugins=(broken,))
    assert done.returncode == 2
    assert "pass 'sick-pass' could not be loaded: RuntimeError: no licence: größe" in done.stderr
    assert "uninstall the package 'sick-pass'" in done.stderr
    done = onnxq("convert", model, "-b", "sick-backend", "-o", out, plugins=(broken,))
    assert done.returncode == 2
    assert "backend 'sick-backend' could not be loaded: ModuleNotFoundError" in done.stderr
    for text in (done.stdout, done.stderr):
        assert "Traceback" not in text
    assert not out.exists()


# -- a name clash ---------------------------------------------------------------------------


def test_a_name_clash_names_both_distributions(example: Path, tmp_path: Path) -> None:
    source = make_package(
        tmp_path / "source",
        "other-chip",
        "onnxq.backends",
        "mychip",
        "from dataclasses import replace\n"
        "from onnxq.backends.onnxruntime import BACKEND\n"
        "THING = replace(BACKEND, name='mychip')\n",
    )
    install(source, tmp_path / "site")
    assert "mychip" in by_name(answer(onnxq("backends", "--json", plugins=(tmp_path / "site",))))
    for command in (["backends"], ["backends", "--json"]):
        done = onnxq(*command, plugins=(example, tmp_path / "site"))
        assert done.returncode == 2
        assert "backend 'mychip' is provided by both" in done.stderr
        assert "mychip-onnxq" in done.stderr
        assert "other-chip" in done.stderr
        if "--json" in command:
            assert json.loads(done.stdout).keys() == {"error", "next"}
        else:
            assert done.stdout == ""
