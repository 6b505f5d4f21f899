"""Encodings 2.0.0: one list in ONNX's own words, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from onnxq.errors import LoadError
from onnxq.formats.aimet_2_0_0 import FORMAT, float_tensors, read, write
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from tests.onnxq.formats.check import check_exact_inverse
from tests.onnxq.formats.tables import model, tables

MODEL = model()
ENTRY = {"name": "x", "output_dtype": "uint8", "y_scale": 0.05, "y_zero_point": 30}


def document(*entries: Any, version: str = "2.0.0") -> str:
    return json.dumps({"version": version, "encodings": list(entries)})


@given(tables(blocks=True))
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_exact_inverse(FORMAT, table)


def test_an_activation() -> None:
    for version in ("2.0.0", "2.1.0"):
        text = document(ENTRY, version=version)
        assert FORMAT.recognises(text)
        (row,) = read(text, MODEL)
        assert row == QParams("x", qtype("uint8"), np.asarray(0.05), np.asarray(30))


def test_the_graph_tells_the_role() -> None:
    rows = read(
        document(
            ENTRY,
            {"name": "gemm.w", "output_dtype": "int8", "y_scale": [1, 2, 3, 4, 5], "axis": 1},
            {"name": "gemm.b", "output_dtype": "int32", "y_scale": [1, 2, 3, 4, 5], "axis": 0},
        ),
        MODEL,
    )
    assert [row.role for row in rows] == [Role.ACTIVATION, Role.WEIGHT, Role.BIAS]


def test_a_zero_point_of_zero_is_left_out() -> None:
    row = QParams("x", qtype("int8"), np.ones(()), np.zeros(()))
    (entry,) = json.loads(write(QParamTable([row]), MODEL))["encodings"]
    assert entry == {"name": "x", "output_dtype": "int8", "y_scale": 1.0}


def test_scales_of_blocks_serve_all_positions_of_a_kernel() -> None:
    scale = np.arange(1, 13, dtype=np.float32).reshape(6, 2, 1, 1)
    entry = {
        "name": "conv.w", "output_dtype": "int4", "y_scale": scale.tolist(), "axis": 1,
        "block_size": 2,
    }  # fmt: skip
    (row,) = read(document(entry), MODEL)
    assert np.array_equal(row.scale, np.broadcast_to(scale, (6, 2, 3, 3)))
    row.broadcast((6, 4, 3, 3))


def test_float_tensors_have_no_row() -> None:
    text = document(ENTRY, {"name": "c", "output_dtype": "float16"})
    assert [row.tensor for row in read(text, MODEL)] == ["x"]
    assert float_tensors(text) == {"c"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"y_scale": ...}, "key 'y_scale' is missing"),
        ({"output_dtype": ...}, "key 'output_dtype' is missing"),
        ({"zero_point": 3}, "unknown key 'zero_point'; did you mean 'y_zero_point'"),
        ({"output_dtype": "u8"}, "not like 'uint8'"),
        ({"output_dtype": "uint32"}, "unsigned codes of 32 bits"),
        ({"output_dtype": 8}, "not a non-empty string"),
        ({"y_scale": "1"}, "neither a finite number nor an array"),
        ({"y_scale": float("inf")}, "neither a finite number nor an array"),
        ({"y_scale": [[1], [1, 2]]}, "nor an array of finite numbers"),
        ({"y_scale": []}, "neither a finite number"),
        ({"y_scale": True}, "neither a finite number"),
        ({"y_scale": 0}, "not a positive finite number"),
        ({"y_zero_point": 0.5}, "'y_zero_point' holds 0.5"),
        ({"y_zero_point": 256}, "zero point 256"),
        ({"y_zero_point": [1]}, "y_scale has shape ()"),
        ({"y_scale": [1.0, 1.0], "y_zero_point": ...}, "2 scales but no axis"),
        ({"axis": "0"}, "'axis' is \"0\""),
        ({"block_size": 2}, "'block_size' without 'axis'"),
        ({"block_size": 0, "axis": 0}, "'block_size' is 0"),
        ({"per_block_int_scale": []}, "themselves quantized"),
    ],
)
def test_a_bad_entry_names_tensor_and_key(changes: dict[str, Any], why: str) -> None:
    entry = {k: v for k, v in (ENTRY | changes).items() if v is not ...}
    with pytest.raises(LoadError) as caught:
        read(document(entry), MODEL)
    assert "'encodings', tensor 'x'" in caught.value.what
    assert why in caught.value.what


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "line 1"),
        ("[]", "version"),
        ('{"version": "1.0.0"}', "version"),
        ('{"version": "2.0.0"}', "it has no encodings"),
        ('{"version": "2.0.0", "encodings": {}}', "'encodings' is not a list"),
        ('{"version": "2.0.0", "encodings": [], "param_encodings": []}', "param_encodings"),
        ('{"version": "2.0.0", "encodings": [1]}', "entry 0 is 1, not an object"),
        ('{"version": "2.0.0", "encodings": [{}]}', "entry 0: key 'name' is missing"),
    ],
)
def test_another_document_is_refused(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read(text, MODEL)


def test_a_tensor_given_twice() -> None:
    with pytest.raises(LoadError, match="tensor 'x' already has an encoding"):
        read(document(ENTRY, ENTRY), MODEL)
