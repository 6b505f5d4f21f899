"""Models quantized by other tools: read exactly, or refused with the reason.

The files lie beside the repository (`../shared/fixtures`) and are not part of it.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import BackendError, OnnxqError
from onnxq.graph import Model, from_proto, load
from onnxq.quant.qparams import QParams
from onnxq.reading import canonical
from onnxq.running import sessions
from tests.checks.other_tools import FIXTURES, examine, name_of
from tests.checks.tables import TableRow
from tests.models.dialects import table

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"

TIES = "values on the border of two codes fall to the other side"
CLOSE = {
    # What is compared with the tool's own simulation, which computes another way than onnxruntime.
    "A1/brevitas-qonnx-int8": (0.06, "the ONNX of both of Brevitas' dialects differs from torch"),
    # The causes of PPQ's are proven in tests/suites/test_esp_ppq_fixtures.py.
    "A1/esp-ppq-espdl-int16-qdq": (6e-5, "float32 cannot hold sums of 16-bit codes: order counts"),
    "A2/esp-ppq-espdl-int8-qdq": (0.04, "ESP-DL's Attention, with a softmax in integers"),
    # The causes of MQBench's are proven in tests/suites/test_mqbench_fixtures.py.
    "A1/mqbench-classic-openvino": (0.012, f"{TIES}: merging a norm rounds the weights anew"),
    "A1/mqbench-classic-openvino-fakequantize": (
        0.025,
        "-64..63 was trained, 256 levels written; scales of ConvTranspose lie along a wrong axis",
    ),
    "A1/mqbench-head-openvino-fakequantize": (0.025, "-64..63 was trained, 256 levels written"),
    "A1/mqbench-classic-pplcuda": (0.009, f"{TIES}: MQBench multiplies by 1/scale"),
    "A1/mqbench-classic-pplw8a16": (4e-5, "float32 cannot hold sums of 16-bit codes: order counts"),
    "A1/mqbench-classic-stpu": (0.009, f"{TIES}: sums are taken in another order"),
    "A1/mqbench-classic-vitis": (0.015, f"{TIES}: MQBench divides a norm out and multiplies again"),
    "A1/esp-ppq-ascend": (0.03, "the file lacks the quantizers of what convolutions give"),
    "A1/esp-ppq-ncnn": (2e-3, f"{TIES}: sums are taken in another order"),
    # These name tensors without readers; PPQ leaves LayerNormalization's input float.
    "A2/esp-ppq-pplcuda": (0.03, "the file cannot say that one reader sees 'x' unrounded"),
    "A2/esp-ppq-qnn": (0.03, "the file cannot say that one reader sees 'x' unrounded"),
    "A2/esp-ppq-trt-json": (0.03, "the file cannot say that one reader sees 'x' unrounded"),
}
"""Largest difference seen, relative to the largest output, and what is known of its cause. These
bounds guard against change; they are no proof that the files are read exactly."""

ROUNDING = 1e-6
"""Sums in another order, or a weight that is computed instead of stored."""

HALF_ROUNDING = 0.02
"""float16 has 11 bits, and what is folded rounds in another place: relative to the output."""

REFUSED = {
    "dynamic": "dynamic quantization",
    "quark-bfp16": "block floating point",
    "quark-mxint8": "block floating point",
    "onnxsim-fp8": "arithmetic on float8 tensors",
    "A1/modelopt-int4-awqclip": "blocks of 16 along axis 0",
    "A2/onnxnc-static-qdq-u8s8-pc": "axis 1 does not exist in shape",
    "A1/mqbench-head-nnie": "it has no scale",
    "A1/mqbench-classic-onnx-qnn-out": "which contains uint8 codes, but ConvTranspose",
    "A1/mqbench-head-onnx-qnn": "which contains uint8 codes, with",
    "esp-ppq-espdl-int8 ": "there is no ONNX file",
    "esp-ppq-nxp": "no quantizers in the ONNX file",
}
"""Part of the name of what is refused, and of the reason."""

pytestmark = pytest.mark.skipif(not FIXTURES, reason="no ../shared/fixtures beside the repository")


@pytest.mark.parametrize("fixture", FIXTURES, ids=map(name_of, FIXTURES))
def test_a_file_is_read_exactly_or_refused_by_name(fixture: Path, table_row: TableRow) -> None:
    found = examine(fixture)
    result = found.dialects if found.read else f"refused: {found.reason}"
    table_row("files of other tools", file=found.name, result=result[:120])
    told = f"{found.dialects} | {found.quantizers} |" if found.read else f"{found.reason} |"
    assert f"| {found.name} | {told}" in PAGE.read_text(encoding="utf-8")
    if not found.read:
        reasons = [why for part, why in REFUSED.items() if part in f"{found.name} "]
        assert reasons, found.reason
        assert any(why in found.reason for why in reasons), found.reason
        return
    if found.name in CLOSE:
        assert found.difference <= CLOSE[found.name][0]
    elif found.oracle == "onnxruntime" and "composed" not in found.dialects:
        assert found.difference == 0
    elif found.steps is not None:
        assert found.steps <= 1
    else:
        assert found.difference <= ROUNDING
    assert found.written == 0 or _is_half(fixture)


def test_most_files_are_read() -> None:
    text = PAGE.read_text(encoding="utf-8")
    read, whole = text.partition("**")[2].split(" are read")[0].split(" of ")
    assert int(whole) == len(FIXTURES)
    assert int(read) >= 165


def _is_half(fixture: Path) -> bool:
    """onnxruntime rounds float16 here or there, depending on what stands around."""
    nodes = canonical(load(fixture / "model.onnx"))[0].nodes(FAKE_QUANTIZE)
    return any(n.inputs[1].dtype == np.float16 for n in nodes)


WITH_MODEL = [f for f in FIXTURES if (f / "model.onnx").exists()]


@pytest.mark.parametrize("fixture", WITH_MODEL, ids=map(name_of, WITH_MODEL))
def test_names_do_not_matter(fixture: Path) -> None:
    """Every node and tensor renamed at random gives the same table."""
    proto = onnx.load(fixture / "model.onnx")
    try:
        want = _rows(from_proto(proto))
    except OnnxqError:
        _rename(proto)
        with pytest.raises(OnnxqError):
            _rows(from_proto(proto))
        return
    _rename(proto)
    got = _rows(from_proto(proto))
    assert len(got) == len(want)
    for mine, first in zip(got, want, strict=True):
        assert mine.same_grid(first)
        assert (mine.qtype, mine.role) == (first.qtype, first.role)


def _rows(model: Model) -> list[QParams]:
    return list(table(canonical(model)[0]))


def _rename(proto: onnx.ModelProto) -> None:
    rng = random.Random(7)
    names: dict[str, str] = {}

    def new(name: str) -> str:
        return names.setdefault(name, f"t{rng.getrandbits(64):x}") if name else ""

    graph = proto.graph
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = new(value.name)
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = new(annotation.tensor_name)
    for node in graph.node:
        node.name = f"n{rng.getrandbits(64):x}"
        node.input[:] = [new(name) for name in node.input]
        node.output[:] = [new(name) for name in node.output]


@pytest.mark.parametrize("fixture", WITH_MODEL, ids=map(name_of, WITH_MODEL))
def test_it_converts_for_onnxruntime(fixture: Path) -> None:
    path = fixture / "model.onnx"
    try:
        model = canonical(load(path))[0]
    except OnnxqError:
        pytest.skip("refused, as tested above")
    params = [params_of(n) for n in model.nodes(FAKE_QUANTIZE)]
    session = sessions.reference(model) if params else None
    if session is None:
        pytest.skip("its quantization lies beside the file, or is logarithmic")
    (spec,) = session.inputs
    x = np.load(fixture.parent / "test.npz")["x"][:1].astype(spec.dtype)
    if any(p.qtype.floating for p in params):
        # Its optimised sessions compute float8 wrongly or do not load it.
        with pytest.raises(BackendError, match="type float8"):
            onnxq.convert(path, "onnxruntime", data={spec.name: x})
        return
    done = onnxq.convert(path, "onnxruntime", data={spec.name: x})
    if _is_half(fixture):
        # Its optimised session refuses some of these, which convert then does not call proven.
        assert all(p.passed or p.refused for p in done.proofs)
        assert done.report is not None
        assert done.report.worst is not None
        assert done.report.worst.max <= HALF_ROUNDING
        return
    assert done.proven, [(p.what, p.refused, p.report.to_json()) for p in done.proofs]
    assert done.report is not None
    assert done.report.worst is not None
    assert done.report.worst.max <= 1e-6, "folding moved a code"
