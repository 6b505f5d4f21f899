"""Common mistakes: each is one message that names the thing and says what to do next.

On the command line the exit code is 2 and nothing is written; in Python it is an OnnxqError.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import torch_bridge as tb
from onnxq.errors import OnnxqError
from onnxq.graph import save
from onnxq.workflows import demo
from onnxq.workflows.side_export import export_side_file
from tests.models.build import parse_filled
from tests.onnxq.conftest import Run, onnxq  # noqa: F401


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models and data of a user who makes mistakes."""
    folder = tmp_path_factory.mktemp("desk")
    save(demo.build(), folder / "float.onnx")
    save(demo.quantize(demo.build()), folder / "quantized.onnx")
    (folder / "text.onnx").write_text("this is no model\n" * 9, encoding="utf-8")
    (folder / "empty").mkdir()
    newer = onnx.load(folder / "float.onnx")
    newer.opset_import[0].version = 99
    (folder / "newer.onnx").write_bytes(newer.SerializeToString())
    images = np.random.default_rng(0).normal(size=(4, 3, 32, 32)).astype(np.float32)
    np.savez(folder / "data.npz", image=images)
    np.savez(folder / "names.npz", imgae=images)
    np.savez(folder / "shapes.npz", image=images[:, :, :31])
    np.savez(folder / "types.npz", image=np.array(["a"] * 4))
    images[2, 0, 0, 0] = np.nan
    np.savez(folder / "nan.npz", image=images)
    rules = {"layers": [["no_such_layer*", "float"]], "words": [["stem", {"weigth_bits": 4}]]}
    for name, rule in rules.items():
        (folder / f"{name}.json").write_text(json.dumps(rule), encoding="utf-8")
    other = parse_filled("g (float[1,4] x) => (float[1,4] y) { y = MatMul (x, w) }", w=(4, 4))
    done = export_side_file(folder / "quantized.onnx", "aimet-1.0.0", verify=False)
    done.save(folder / "sides")
    save(other, folder / "other.onnx")
    return folder


QUANTIZE = "quantize {d}/float.onnx -b onnxruntime -o {d}/out"
CONVERT = "convert {d}/quantized.onnx -b onnxruntime -o {d}/out"

COMMANDS: dict[str, tuple[str, str, str]] = {
    "a path that does not exist": ("inspect {d}/nope.onnx", "nope.onnx", "check the path"),
    "a folder as a model": ("inspect {d}/empty", "empty: this is a folder", "give a file"),
    "a text file as a model": ("inspect {d}/text.onnx", "text.onnx: not an ONNX", "export or copy"),
    "a float model to convert": (
        "convert {d}/float.onnx -b onnxruntime -o {d}/out",
        "no quantizers",
        "onnxq quantize",
    ),
    "a quantized model to quantize": (
        "quantize {d}/quantized.onnx -b onnxruntime --data {d}/data.npz -o {d}/out",
        "quantized already",
        "onnxq convert",
    ),
    "an unknown backend": (f"{CONVERT} -b onxruntime", "'onxruntime'", "'onnxruntime'"),
    "an unknown variant": (f"{CONVERT} --variant avx", "no variant 'avx'", "'avx2'"),
    "an unknown pass": (
        "run {d}/quantized.onnx -p to-qqdq -o {d}/out.onnx",
        "'to-qqdq'",
        "'to-qdq'",
    ),
    "an unknown option of a pass": (
        "run {d}/quantized.onnx -p to-qdq{{opsett=21}} -o {d}/out.onnx",
        "'opsett'",
        "'opset'",
    ),
    "an unknown format": (
        "encodings {d}/quantized.onnx -f aimet -o {d}/out",
        "unknown format 'aimet'",
        "'aimet-1.0.0'",
    ),
    "an unknown tensor": ("explain {d}/quantized.onnx imag", "'imag'", "'image'"),
    "an unknown command": ("convertt {d}/quantized.onnx", "'convertt'", "'convert'"),
    "data with wrong names": (f"{QUANTIZE} --data {{d}}/names.npz", "imgae", "model's inputs"),
    "data of a wrong shape": (f"{QUANTIZE} --data {{d}}/shapes.npz", "[4, 3, 31, 32]", "shape of"),
    "data of a wrong type": (f"{QUANTIZE} --data {{d}}/types.npz", "types.npz", "float32"),
    "an empty folder as data": (f"{QUANTIZE} --data {{d}}/empty", "no .npy or .npz", "samples"),
    "a sample with NaN": (f"{QUANTIZE} --data {{d}}/nan.npz", "sample 3", "remove the sample"),
    "no data": (QUANTIZE, "need data", "--data"),
    "data that does not exist": (f"{CONVERT} --data {{d}}/none.npz", "none.npz", "path"),
    "options of pictures without pictures": (
        f"{QUANTIZE} --data {{d}}/data.npz --mean 0.5",
        "--mean",
        "--image-size",
    ),
    "a metric that is half given": (
        f"{QUANTIZE} --data {{d}}/data.npz --max-drop 0.1",
        "metric",
        "give both",
    ),
    "an option for encodings without any": (
        f"{CONVERT} --allow-missing",
        "allow_missing",
        "--encodings",
    ),
    "an output folder that is a file": (
        "convert {d}/quantized.onnx -b onnxruntime -o {d}/text.onnx",
        "text.onnx is a file",
        "give a folder",
    ),
    "an opset that is too new": (
        "verify {d}/newer.onnx {d}/float.onnx",
        "newer.onnx",
        "an opset that onnxruntime supports",
    ),
    "encodings of another model": (
        "convert {d}/other.onnx --encodings {d}/sides/quantized_aimet-1.0.0.json "
        "-b onnxruntime -o {d}/out",
        "image",
        "--allow-missing",
    ),
    "a rule for a layer that is not there": (
        f"{QUANTIZE} --data {{d}}/data.npz --settings {{d}}/layers.json",
        "'no_such_layer*'",
        "choose from",
    ),
    "a rule with a word that is not known": (
        f"{QUANTIZE} --data {{d}}/data.npz --settings {{d}}/words.json",
        "'weigth_bits'",
        "'weight_bits'",
    ),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_on_the_command_line(onnxq: Run, desk: Path, mistake: str) -> None:  # noqa: F811
    words, thing, step = COMMANDS[mistake]
    before = sorted(desk.rglob("*"))
    code, out, err = onnxq(*words.format(d=desk).split())
    assert (code, out) == (2, "")
    assert thing in err
    assert step in " ".join(err[err.index(thing) :].split())
    assert "Traceback" not in err
    assert "--debug" not in err  # a fault of the program, not of the user
    assert sorted(desk.rglob("*")) == before


def _net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())


def _prepared(**options: Any) -> Any:
    chosen = {"backend": "tensorrt", "example_inputs": (torch.zeros(1, 3, 8, 8),), **options}
    return tb.prepare(_net(), **chosen)


_X = (torch.zeros(1, 3, 8, 8),)

CALLS: dict[str, tuple[Callable[[], object], str, str]] = {
    "no example inputs": (
        lambda: tb.prepare(_net(), backend="tensorrt"),
        "missing a required argument: 'input'",
        "example_inputs=",
    ),
    "an unknown algorithm": (lambda: _prepared(weight="lsk"), "'lsk'", "'lsq'"),
    "an unknown backend": (lambda: _prepared(backend="tensort"), "'tensort'", "'tensorrt'"),
    "inputs of a wrong shape": (
        lambda: _prepared(example_inputs=(torch.zeros(1, 4, 8, 8),)),
        "expected input[1, 4, 8, 8] to have 3 channels",
        "inputs that the float model runs with",
    ),
    "a rule for a layer that is not there": (
        lambda: _prepared(settings=[["no_such_layer", "float"]]),
        "'no_such_layer'",
        "choose from",
    ),
    "a model that is prepared already": (
        lambda: tb.prepare(_prepared(), backend="tensorrt", example_inputs=_X),
        "prepared already",
        "prepare the float model",
    ),
    "export before calibration": (
        lambda: tb.export(_prepared(), _X, "never.onnx"),
        "none of the 2 quantizers is on",
        "enable_quantization",
    ),
    "export of a float model": (
        lambda: tb.export(_net(), _X, "never.onnx"),
        "was not prepared",
        "torch_bridge.prepare",
    ),
    "calibration of a float model": (
        lambda: tb.enable_calibration(_net()),
        "was not prepared",
        "torch_bridge.prepare",
    ),
}


@pytest.mark.parametrize("mistake", CALLS)
def test_in_training(mistake: str) -> None:
    call, thing, step = CALLS[mistake]
    with pytest.raises(OnnxqError) as caught:
        call()
    assert thing in caught.value.what
    assert step in caught.value.fix


def test_there_are_enough() -> None:
    assert len(COMMANDS) + len(CALLS) >= 25
