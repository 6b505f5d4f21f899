"""Files of other tools go to targets that they were not made for.

A sample of what `make test-recast` measures: every file for every backend. The files lie beside the
repository (`../shared/fixtures`) and are not part of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.recast_matrix import cell, opened, sources, targets
from tests.checks.recast_page import MADE
from tests.checks.tables import TableRow
from tests.models.foreign_files import FOLDER

PAIRS = [
    # Grids of a kind that the target lacks.
    ("A1/nncf-fp8e4m3", "onnxruntime"),
    ("A2/modelopt-fp8", "tvm"),
    ("A1/mqbench-classic-nnie", "tensorrt"),
    ("A1/ort-qdq-u8s8", "nnie"),
    # One range for all consumers, of which only some see the tensor rounded.
    ("A1/onnxsim-qoperator", "stpu"),
    ("A1/torch-composed-u8s8-pc-dynamo", "rknn"),
    ("A1/torch-fakequant-u7s8-clip-dynamo", "qnn"),
    # Weights alone: the ranges come from data.
    ("A1/modelopt-int4-rtndq", "tengine"),
    ("A2/ort-matmulnbits-int4", "nnie"),
    # Two quantizers on one tensor, and Relus that a quantizer stands for.
    ("A1/brevitas-qcdq-dynamo-w4a8", "mnn"),
    ("A1/onnxsim-static-qdq", "ppl"),
    # A product of rows, written as Reshape, Gemm and Reshape.
    ("A2/ort-qdq-u8s8", "ncnn"),
    # Rounded in float16, at places that depend on what folding left.
    ("A1/modelopt-int8-entropy-fp16", "vitis"),
    # Float16, which the target does not have.
    ("A2/modelopt-int8-entropy-fp16", "qonnx"),
]

LEAST_SQNR = 15.0
"""dB on typical inputs: a network that lost its function has less than 3."""

pytestmark = pytest.mark.skipif(not sources(), reason="no ../shared/fixtures beside the repository")


@pytest.mark.parametrize(("name", "backend"), PAIRS, ids=lambda text: text.replace("/", "-"))
def test_a_file_is_converted_proven_and_its_cost_measured(
    name: str, backend: str, table_row: TableRow
) -> None:
    fixture: Path = FOLDER / name
    if not (fixture / "model.onnx").exists():
        pytest.skip(f"no {name} among the files")
    source = opened(fixture)
    assert source is not None
    found = cell(source, backend)
    assert found.outcome in MADE, found.reason
    assert found.passed, found.reason
    assert found.sqnr is None or found.sqnr > LEAST_SQNR
    ratio = f"{found.sqnr:.1f} dB" if found.sqnr is not None else "exact"
    table_row("recast", file=name, backend=backend, how=found.outcome, cost=ratio)


def test_no_backend_is_left_out() -> None:
    assert {"onnxruntime", "tensorrt", "nnie", "vitis", "ncnn"} <= set(targets())
