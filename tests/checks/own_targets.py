"""Files of other tools converted for the target they were made for, without any option.

    python -m tests.checks.own_targets [PART OF A NAME ...]

prints a table of all of them. They lie beside the repository (`../shared/fixtures`) and are not
part of it.
"""

from __future__ import annotations

import fnmatch
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxq.errors import OnnxqError
from onnxq.graph import load
from onnxq.reading import canonical
from onnxq.running import sessions
from onnxq.workflows.convert import Conversion, convert
from onnxq.workflows.encodings import with_encodings
from tests.models.foreign_files import FOLDER

Feed = dict[str, np.ndarray]

MODELS = {
    "aimet-*-htp*": ("qnn",),
    "aimet-w4a8-default": ("qnn",),
    "esp-ppq-openvino*": ("openvino",),
    "esp-ppq-ort-qdq": ("onnxruntime",),
    "esp-ppq-pplcuda-qdq": ("ppl-cuda",),
    "esp-ppq-trt-qdq": ("tensorrt",),
    "modelopt-fp8": ("tensorrt",),
    "modelopt-int*": ("tensorrt",),
    "mqbench-*-academic": ("academic",),
    "mqbench-*-openvino": ("openvino",),
    "mqbench-*-openvino-fakequantize": ("openvino",),
    "mqbench-*-pplcuda": ("ppl-cuda",),
    "mqbench-*-pplw8a16": ("ppl",),
    "mqbench-*-snpe": ("snpe",),
    "mqbench-*-stpu": ("stpu",),
    "mqbench-*-tengine-u8": ("tengine",),
    "mqbench-*-tensorrt": ("tensorrt",),
    "mqbench-*-tensorrt-nlp": ("tensorrt-nlp",),
    "mqbench-*-vitis": ("vitis",),
    "mqbench-classic-nnie": ("nnie",),
    "nncf-fp8e4m3": ("openvino",),
    "nncf-mixed": ("openvino",),
    "nncf-performance": ("openvino",),
    "ort-qdq-qnn-*": ("qnn",),
    "ort-qdq-u16s8-*": ("qnn", "onnxruntime"),
    "brevitas-qonnx-*": ("qonnx",),
    "quark-u16s8-aaws": ("qnn",),
    "quark-xint8": ("vitis", "qnn"),
}
"""Quantized models, by a pattern of their variant, and the backends that their tool made them for.
"""

SIDE_FILES = {
    "aimet-*/encodings_*.json": "qnn",
    "esp-ppq-ascend/config.txt": "",
    "esp-ppq-ncnn/config.table": "ncnn",
    "esp-ppq-pplcuda/config.json": "ppl-cuda",
    "esp-ppq-qnn/config.json": "qnn",
    "esp-ppq-rknn/config.json": "rknn",
    "esp-ppq-tengine/config.*": "tengine",
    "esp-ppq-trt-json/config.json": "tensorrt",
    "mqbench-*-nnie/*.json": "nnie",
    "mqbench-*-pplcuda/*.json": "ppl-cuda",
    "mqbench-*-pplw8a16/*.json": "ppl",
    "mqbench-*-snpe/*.json": "snpe",
    "mqbench-*-tengine-u8/*.scale": "tengine",
    "mqbench-*-tensorrt/*.json": "tensorrt",
    "mqbench-*-vitis/*.json": "vitis",
}
"""Side files, by a pattern, and the backend that their tool made them for; "": onnxq has none."""


@dataclass(frozen=True)
class Case:
    """One conversion."""

    model: Path
    backend: str
    encodings: Path | None = None

    @property
    def name(self) -> str:
        """Network, variant, file and backend."""
        file = self.encodings or self.model
        return f"{file.relative_to(FOLDER)} -> {self.backend or 'read'}"

    def __str__(self) -> str:
        return self.name

    @property
    def data(self) -> list[Feed]:
        """The inputs that its tool was tried on, one sample each."""
        (spec,) = sessions.reference(canonical(load(self.model))[0]).inputs
        x = np.load(FOLDER / self.model.relative_to(FOLDER).parts[0] / "test.npz")["x"]
        return [{spec.name: x[i : i + 1].astype(spec.dtype)} for i in range(len(x))]

    def convert(self, data: list[Feed] | None = None) -> Conversion:
        """Convert it as a user would who knows no option."""
        beside = () if self.encodings is None else self.encodings
        return convert(self.model, self.backend, encodings=beside, data=data)


def quantized_models() -> list[Case]:
    """Models that carry their quantization, each for its own targets."""
    return [
        Case(path, backend)
        for path in sorted(FOLDER.glob("*/*/model.onnx"))
        for pattern, backends in MODELS.items()
        if fnmatch.fnmatch(path.parent.name, pattern) and not broken(path)
        for backend in backends
    ]


def broken(path: Path) -> bool:
    """Whether no runtime takes the file: scales of another shape than its blocks need."""
    return path.parent.parent.name + "/" + path.parent.name == "A1/modelopt-int4-awqclip"


def side_files() -> list[Case]:
    """Side files, each beside its float model and for its own target."""
    return [
        Case(float_model(path), backend, path)
        for pattern, backend in SIDE_FILES.items()
        for path in sorted(FOLDER.glob(f"*/{pattern}"))
        if path.name != "meta.json"
    ]


def float_model(path: Path) -> Path:
    """The float model of a side file; some variants share that of their neighbour."""
    folder = path.parent
    if folder.name.startswith("esp-ppq"):
        return folder / "model.onnx"
    if folder.name.startswith("aimet"):
        return folder.parent / "aimet-w8a8-htp73" / "float_with_encodings.onnx"
    classic = folder.parent / folder.name.replace("-head-", "-classic-")
    (found,) = classic.glob("mqbench_m*.onnx")
    return found


def outcome(case: Case) -> str:
    """What became of a conversion, in words."""
    try:
        if not case.backend:
            with_encodings(canonical(load(case.model))[0], case.encodings or ())
            return "read"
        done = case.convert()
    except OnnxqError as error:
        return f"refused: {error.what}"
    failed = [p for p in done.proofs if not p.passed]
    if not failed:
        return "proven"
    worst = failed[0].report.worst
    assert worst is not None
    return (
        f"not proven: {failed[0].what} {failed[0].refused} '{worst.name}' {worst.max:.3g} "
        f"{worst.unit}, {worst.moved:.2%} moved, limit {worst.tolerance}"
    )


if __name__ == "__main__":
    for each in (*quantized_models(), *side_files()):
        if not sys.argv[1:] or any(part in each.name for part in sys.argv[1:]):
            sys.stdout.write(f"{each.name}: {outcome(each)}\n")
