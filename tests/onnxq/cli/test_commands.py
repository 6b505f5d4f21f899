"""The command line as a user meets it: output, exit codes, and one clear message on bad input."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq import __version__
from onnxq.backend import find_backend
from onnxq.cli import commands
from onnxq.graph import load, save
from onnxq.reading import READERS
from onnxq.workflows import demo
from tests.models.build import parse, quantize, weight
from tests.models.networks import quantized
from tests.models.zoo import ZOO
from tests.onnxq.conftest import Run

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo network as a file."""
    path = tmp_path_factory.mktemp("network") / "net.onnx"
    save(demo.quantize(demo.build()), path)
    return path


def write(path: Path, name: str) -> Path:
    path.write_bytes(ZOO[name]().SerializeToString())
    return path


# -- what works -------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_convert(onnxq: Run, network: Path, tmp_path: Path, backend: str) -> None:
    code, out, err = onnxq("convert", network, "--backend", backend, "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    assert f"written to {tmp_path / 'out'}, proven" in " ".join(out.split())
    assert "0 steps" in out
    assert "net_qdq.onnx" in out
    assert (tmp_path / "out" / "net_qdq.onnx").is_file()


def test_convert_for_a_variant(onnxq: Run, network: Path, tmp_path: Path) -> None:
    words = ("convert", network, "-b", "onnxruntime", "-o", tmp_path / "out")
    code, out, _ = onnxq(*words, "--variant", "qoperator", "--json")
    document = json.loads(out)
    assert (code, document["variant"], document["proven"]) == (0, "qoperator", True)
    assert document["cost"][0]["max"] <= 1
    assert [f.name for f in (tmp_path / "out").iterdir()] == ["net_qoperator.onnx"]
    code, _, err = onnxq(*words, "--variant", "qoperators")
    assert code == 2
    assert "did you mean 'qoperator'?" in err


def test_convert_json_is_one_document(onnxq: Run, network: Path, tmp_path: Path) -> None:
    code, out, _ = onnxq("convert", network, "-b", "tensorrt", "-o", tmp_path, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["proven"] is True
    assert len(document["files"]) == 4


def test_convert_explains(onnxq: Run, tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", "qdq_bn_unfolded")
    code, out, _ = onnxq("convert", model, "-b", "onnxruntime", "-o", tmp_path / "o", "--explain")
    assert code == 0
    assert re.search(r"fold-affine +│ +3 │ +0 │", out)  # rewrote three nodes, left none
    said = " ".join(out.split())
    assert re.search("fold-constants skipped '.*FakeQuantize.*: quantization stays in", said)


def test_convert_dumps_every_pass(onnxq: Run, network: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    code, _, _ = onnxq("convert", network, "-b", "tensorrt", "-o", tmp_path, "--dump", dump)
    assert code == 0
    names = sorted(p.name for p in dump.iterdir())
    for number, reader in enumerate(READERS, start=1):
        assert names[number - 1] == f"{number:02}-{reader}.onnx"
    assert any("fold-batch-norm" in n for n in names)


def test_convert_with_data(onnxq: Run, network: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(0).normal(size=(3, 3, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "data.npz", image=images)
    code, out, _ = onnxq(
        *("convert", network, "-b", "onnxruntime", "-o", tmp_path / "o"),
        *("--data", tmp_path / "data.npz", "--json"),
    )
    assert code == 0
    assert json.loads(out)["proofs"][0]["samples"] == 3


def test_convert_without_verifying_says_so(onnxq: Run, network: Path, tmp_path: Path) -> None:
    code, out, _ = onnxq("convert", network, "-b", "tensorrt", "-o", tmp_path, "--no-verify")
    assert code == 0
    assert f"written to {tmp_path}, not verified" in " ".join(out.split())


def test_run_executes_only_what_is_listed(onnxq: Run, network: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    code, out, _ = onnxq("run", network, "-p", "fold-batch-norm", "-o", target)
    assert code == 0
    assert re.search(r"fold-batch-norm +│ +[1-9]", out)
    assert f"written to {target}" in " ".join(out.split())
    made = load(target)
    assert not made.nodes("BatchNormalization")
    assert made.nodes("onnxq::FakeQuantize")


def test_run_puts_readers_in_front_where_needed(onnxq: Run, tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", "qdq_residual")
    code, out, _ = onnxq(
        "run", model, "-p", "to-qdq{weights=float}", "-o", tmp_path / "o.onnx", "--json"
    )
    assert code == 0
    document = json.loads(out)
    assert document["pipeline"] == ",".join([*READERS, "to-qdq{weights=float}"])
    assert [t["pass"] for t in document["traces"]] == [*READERS, "to-qdq"]


def test_verify_agrees_and_differs(onnxq: Run, network: Path, tmp_path: Path) -> None:
    code, out, _ = onnxq("verify", network, network, "--per-layer")
    assert code == 0
    assert "the models agree (4 samples, reference vs reference session)" in out
    other = onnx.load(network)
    for tensor in other.graph.initializer:
        if tensor.name == "classifier.bias":
            values = onnx.numpy_helper.to_array(tensor) + 1
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    (tmp_path / "other.onnx").write_bytes(other.SerializeToString())
    code, out, _ = onnxq("verify", network, tmp_path / "other.onnx", "--json")
    assert code == 1
    assert json.loads(out)["passed"] is False
    code, out, _ = onnxq("verify", network, tmp_path / "other.onnx")
    assert code == 1
    assert "FAILED" in out
    assert "the models differ" in out


def test_inspect(onnxq: Run, network: Path) -> None:
    code, out, _ = onnxq("inspect", network)
    assert code == 0
    assert "stem.weight" in out
    assert "6 of 6 layers have quantized input and weight" in out
    code, out, _ = onnxq("inspect", network, "--json")
    document = json.loads(out)
    assert document["dialects"] == ["canonical"]
    assert len(document["table"]["rows"]) == 16


@pytest.mark.parametrize("name", sorted(ZOO))
def test_inspect_reads_the_whole_zoo(onnxq: Run, tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "m.onnx", name)
    code, out, err = onnxq("inspect", path)
    assert (code, err) == (0, "")
    found = json.loads(onnxq("inspect", path, "--json")[1])
    model = re.sub(r"[\s│]", "", out)  # long cells have several lines
    operators = ",".join(f"{op}{count}" for op, count in found["ops"].items())
    dialects = ",".join(found["dialects"]).replace(" ", "")
    assert f"operators{operators}quantization{dialects or 'none'}" in model


def test_version(onnxq: Run) -> None:
    assert onnxq("--version") == (0, f"onnxq {__version__}\n", "")


# -- what does not ----------------------------------------------------------------------------


def corrupt(path: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    model = ZOO["qdq_int8_per_tensor"]()
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def set_scale(value: float) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        name = next(n for n in model.graph.node if n.op_type == "QuantizeLinear").input[1]
        for tensor in model.graph.initializer:
            if tensor.name == name:
                old = onnx.numpy_helper.to_array(tensor)
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.full_like(old, value), name))

    return change


def cycle(model: onnx.ModelProto) -> None:
    conv = next(n for n in model.graph.node if n.op_type == "Conv")
    first = model.graph.node[0]
    first.input[0] = conv.output[0]


def dangling(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = "nowhere"


def long_scale(model: onnx.ModelProto) -> None:
    pairs = [n for n in model.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    codes = pairs[0].output[0]
    for node in (n for n in pairs if codes in (*n.input, *n.output)):
        node.input[1], node.input[2] = "scales", "zeros"
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.full(5, 0.1, np.float32), "scales")
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(5, np.int8), "zeros"))


def missing_data(model: onnx.ModelProto) -> None:
    tensor = next(t for t in model.graph.initializer if len(t.dims) > 1)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="gone.bin")


BAD_MODELS = {
    "scale 0": (set_scale(0.0), r"scale 0\.0 is not a positive"),
    "scale nan": (set_scale(np.nan), r"scale nan"),
    "scale inf": (set_scale(np.inf), r"scale inf"),
    "cycle": (cycle, r"cycle"),
    "dangling input": (dangling, r"'nowhere', which has no producer"),
    "wrong number of scales": (long_scale, r"5 scales for \d+ channels"),
    "missing external data": (missing_data, r"gone\.bin"),
}


@pytest.mark.parametrize("case", sorted(BAD_MODELS))
def test_a_bad_model_is_one_message_and_nothing_is_written(
    onnxq: Run, tmp_path: Path, case: str
) -> None:
    change, pattern = BAD_MODELS[case]
    model = corrupt(tmp_path / "bad.onnx", change)
    refused(onnxq, tmp_path, pattern, "convert", model, "-b", "onnxruntime", "-o", tmp_path / "o")
    refused(onnxq, tmp_path, pattern, "run", model, "-p", "to-qdq", "-o", tmp_path / "o.onnx")


def test_zero_point_outside_the_range(onnxq: Run, tmp_path: Path) -> None:
    model = ZOO["qdq_narrow_activations"]()
    clip = next(n for n in model.graph.node if n.op_type == "Clip")
    quantize = next(n for n in model.graph.node if clip.input[0] in n.output)
    zero = next(t for t in model.graph.initializer if t.name == quantize.input[2])
    high = next(t for t in model.graph.initializer if t.name == clip.input[2])
    beyond = onnx.numpy_helper.to_array(high) + 1
    zero.CopyFrom(onnx.numpy_helper.from_array(beyond.astype(beyond.dtype), zero.name))
    path = tmp_path / "bad.onnx"
    path.write_bytes(model.SerializeToString())
    refused(
        *(onnxq, tmp_path, r"zero point \d+ is outside"),
        *("convert", path, "-b", "onnxruntime", "-o", tmp_path / "o"),
    )


def bad_files(folder: Path) -> dict[str, Path]:
    good = ZOO["qdq_residual"]().SerializeToString()
    (folder / "truncated.onnx").write_bytes(good[: len(good) // 2])
    (folder / "text.onnx").write_text("this is not a model\n" * 40)
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "noise.onnx").write_bytes(np.random.default_rng(0).bytes(4096))
    (folder / "folder.onnx").mkdir()
    return {p.stem: p for p in folder.iterdir()} | {"missing": folder / "missing.onnx"}


@pytest.mark.parametrize("case", ["truncated", "text", "empty", "noise", "folder", "missing"])
@pytest.mark.parametrize("command", ["convert", "run", "inspect", "verify"])
def test_a_bad_file_is_named(onnxq: Run, tmp_path: Path, case: str, command: str) -> None:
    path = bad_files(tmp_path)[case]
    words: dict[str, list[object]] = {
        "convert": ["-b", "tensorrt", "-o", tmp_path / "o"],
        "run": ["-p", "drop-identity", "-o", tmp_path / "o.onnx"],
        "inspect": [],
        "verify": [path],
    }
    refused(onnxq, tmp_path, re.escape(path.name), command, path, *words[command])


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        ("run {m} -p fold-batchnorm -o {t}/o.onnx", "did you mean 'fold-batch-norm'"),
        ("run {m} -p to-qdq{{opset=new}} -o {t}/o.onnx", "cannot be 'new'"),
        ("run {m} -p to-qdq{{opsett=21}} -o {t}/o.onnx", "did you mean 'opset'"),
        ("run {m} -p to-qdq{{weights=packed}} -o {t}/o.onnx", "weights"),
        ("run {m} -p remove-fake-quant,collect-qparams -o {t}/o.onnx", "comes before"),
        ("convert {m} -b tensort -o {t}/o", "did you mean 'tensorrt'"),
        ("convert {m} -b tensorrt -o {m}", "is a file"),
        ("run {m} -p drop-identity -o {m}/o.onnx", "is a file"),
        ("run {m} -p drop-identity -o /dev/null", "not a regular file"),
        ("run {m} -p '' -o {t}/o.onnx", "no passes"),
        ("convert {m} -b tensorrt -o {t}/o --data {t}/none.npz", "none.npz"),
        ("verify {m} {m} --data {t}/none.npz", "none.npz"),
    ],
)
def test_bad_usage(onnxq: Run, network: Path, tmp_path: Path, words: str, pattern: str) -> None:
    model = tmp_path / "m.onnx"
    shutil.copy(network, model)
    refused(onnxq, tmp_path, pattern, *shlex.split(words.format(m=model, t=tmp_path)))


def test_a_link_is_followed(onnxq: Run, network: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target.onnx", tmp_path / "link.onnx"
    target.write_bytes(b"old")
    link.symlink_to(target)
    assert onnxq("run", network, "-p", "drop-identity", "-o", link)[0] == 0
    assert link.is_symlink()
    assert load(target).nodes("Conv")


def test_names_with_markup_reach_the_user(onnxq: Run, network: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out[bold]"
    code, out, _ = onnxq("convert", network, "-b", "tensorrt", "-o", folder, "--no-verify")
    assert code == 0
    assert "out[bold]" in out.replace("\n", "")


def test_all_files_or_none(onnxq: Run, network: Path, tmp_path: Path) -> None:
    (tmp_path / "o" / "net_clip_ranges.json").mkdir(parents=True)
    refused(
        onnxq, tmp_path, "is a folder", "convert", network, "-b", "tensorrt", "-o", tmp_path / "o"
    )


def test_a_fault_of_the_program_is_not_exit_code_1(
    onnxq: Run, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(commands, "summarize", broken)
    code, out, err = onnxq("inspect", network)
    assert (code, out) == (2, "")
    assert "ZeroDivisionError: a fault" in err
    assert "--debug" in err


def test_as_a_module(network: Path) -> None:
    command = [sys.executable, "-m", "onnxq", "inspect", str(network), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout)["dialects"] == ["canonical"]


def refused(onnxq: Run, folder: Path, pattern: str, *words: object) -> None:
    """Exit code 2, one message that matches and says what to do, and the folder as before."""
    before = snapshot(folder)
    code, out, err = onnxq(*words)
    assert code == 2, err
    assert out == ""
    assert re.search(pattern, err), err
    assert err.startswith("error: ")
    assert "  next: " in err
    assert "Traceback" not in err
    assert snapshot(folder) == before


def snapshot(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in folder.rglob("*")
        if p.is_file()
    }


def test_a_failed_proof_is_exit_code_1(
    onnxq: Run, network: Path, tmp_path: Path, spoil: Callable[[], None]
) -> None:
    spoil()
    code, out, _ = onnxq("convert", network, "-b", "onnxruntime", "-o", tmp_path)
    assert code == 1
    said = " ".join(out.split())
    assert f"NOT PROVEN: the files in {tmp_path / 'unproven'} do not match the model." in said
    assert "is wrong by itself: on the inputs that it reads, " in said
    assert "next: compare weights, bias, scales and zero points of " in said


def test_quantizers_are_moved_only_with_permission(onnxq: Run, tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    save(quantized("conv1d", find_backend("onnxruntime")), model)
    words = ("convert", model, "-b", "tensorrt", "-o", tmp_path / "out")
    code, _, err = onnxq(*words)
    assert code == 2
    assert "--allow-requantize" in err
    assert not (tmp_path / "out").exists()
    code, out, _ = onnxq(*words, "--allow-requantize", "--explain")
    assert code == 0
    assert "Cost of the changes" in out
    assert "requantized (cost)" not in out  # the same numbers
    assert "up to the change (canonical)" in out
    assert "% of its range" in out.replace("\n", " ")
    said = " ".join(out.split())
    assert "; the files are proven, but the network was changed: see the cost" in said
    code, out, _ = onnxq(*words, "--allow-requantize", "--json")
    told = json.loads(out)
    assert told["proven"]
    (moved,) = (t for t in told["traces"] if t["pass"] == "approximate-grids")
    assert len(moved["rewrites"]) == 5  # the input, three layers, the pool
    assert told["cost"][0]["max"] > 0


def test_a_recast_model_says_where_its_ranges_come_from(onnxq: Run, tmp_path: Path) -> None:
    model = parse("""g (float[1,2,4,4] x) => (float[1,1,4,4] y)
        <float[1,2,1,1] w = {0.5, -0.25}> { y = Conv(x, w) }""")
    quantize(model, "x", qtype="float8e4m3fn", scale=np.float32(0.01))
    weight(model, "w", qtype="float8e4m3fn", scale=np.float32(0.01))
    save(model, tmp_path / "net.onnx")
    words = ("convert", tmp_path / "net.onnx", "-b", "tvm", "-o", tmp_path)
    assert onnxq(*words)[0] == 2
    code, out, _ = onnxq(*words, "--allow-requantize", "--json")
    assert code == 0
    told = json.loads(out)
    assert "the float8e4m3fn quantizer" in told["range_sources"]["x"]
    code, out, _ = onnxq("explain", tmp_path / "net_qdq.onnx", "x", "--json")
    assert code == 0
    assert f"range: {told['range_sources']['x']}" in json.loads(out)["origin"]


def test_the_cost_may_be_limited(onnxq: Run, tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    save(quantized("conv1d", find_backend("onnxruntime")), model)
    words = ("convert", model, "-b", "tensorrt", "-o", tmp_path / "out", "--allow-requantize")
    told = json.loads(onnxq(*words, "--json")[1])
    assert told["range_sources"] == {}
    reached = told["cost"][0]["sqnr"]
    assert reached > 10
    assert onnxq(*words, "--min-sqnr", f"{reached - 1}")[0] == 0
    code, out, _ = onnxq(*words, "--min-sqnr", f"{reached + 1}")
    assert code == 1
    assert "NOT PROVEN" in out
    assert "--min-sqnr DB sets another limit" in " ".join(out.split())
    code, _, err = onnxq(*words, "--min-sqnr", "nan")
    assert code == 2
    assert "nan is no ratio of signal to difference" in err


def test_debug_shows_the_traceback(onnxq: Run, network: Path) -> None:
    code, out, err = onnxq("--debug", "run", network, "-p", "nope", "-o", "x.onnx")
    assert (code, out) == (2, "")
    assert err.startswith("Traceback")
    assert "OptionError" in err


def test_the_help_shows_every_summary_whole(onnxq: Run) -> None:
    code, out, _ = onnxq("--help")
    assert code == 0
    summaries = out.partition("Commands:")[2]
    assert summaries.split()[0] == "quantize"
    assert "..." not in summaries
