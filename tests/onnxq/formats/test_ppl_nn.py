"""Parameters for ppl.nn, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from onnxq.formats.ppl_nn import FORMAT
from onnxq.quant.qparam_table import QParamTable
from tests.onnxq.formats.check import MODEL, check_inverse, refuses_rows, refuses_text, row
from tests.onnxq.formats.tables import BIASES, tables


@given(tables())
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_inverse(FORMAT, QParamTable([r for r in table if r.tensor not in BIASES]))


def test_layout() -> None:
    found = json.loads(FORMAT.write(QParamTable([row("c", "int8", 0.5)]), MODEL))
    assert found["quant_info"] == {
        "c": {
            "algorithm": "onnxq",
            "bit_width": 8,
            "per_channel": False,
            "quant_flag": True,
            "sym": True,
            "scale": 0.5,
            "zero_point": 0,
            "tensor_min": -64.0,
            "tensor_max": 63.5,
            "q_min": -128,
            "q_max": 127,
        }
    }
    assert found["op_info"]["node_c"] == {"data_type": "INT8"}
    assert found["op_info"]["node_u"] == {"data_type": "INT8"}
    assert found["op_info"]["node_y"] == {"data_type": "FLOAT32"}


def test_the_engine_finds_the_scale_again() -> None:
    for kind, zero in (("uint8", 17), ("int8", 0), ("uint16", 9), ("int4", 2)):
        (entry,) = json.loads(FORMAT.write(QParamTable([row("x", kind, 0.3, zero)]), MODEL))[
            "quant_info"
        ].values()
        steps = 2 ** entry["bit_width"] - 1
        assert (entry["tensor_max"] - entry["tensor_min"]) / steps == pytest.approx(entry["scale"])


def test_narrow_ranges_are_refused() -> None:
    refuses_rows(FORMAT, [row("x", "int8", lo=-127)], "codes -127..127")


def document(**changes: Any) -> str:
    entry = {
        "bit_width": 8,
        "per_channel": False,
        "scale": 0.5,
        "zero_point": 3,
        "tensor_min": -1.5,
        "tensor_max": 126.0,
    }
    made = {k: v for k, v in (entry | changes).items() if v is not None}
    return json.dumps({"quant_info": {"x": made}, "op_info": {}})


def test_keys_that_others_leave_out_or_add() -> None:
    assert FORMAT.read(document(), MODEL).rows == [row("x", "uint8", 0.5, 3)]
    assert FORMAT.read(document(sym=False, hash=1, dominator=2), MODEL).rows == [
        row("x", "uint8", 0.5, 3)
    ]
    symmetric = document(sym=True, zero_point=0, tensor_min=-64.0, tensor_max=63.5)
    assert FORMAT.read(symmetric, MODEL).rows == [row("x", "int8", 0.5)]


def test_a_flag_keeps_a_tensor_float() -> None:
    text = document(quant_flag=False)
    assert FORMAT.read(text, MODEL).rows == []
    assert FORMAT.float_tensors(text) == {"x"}
    assert FORMAT.float_tensors(document()) == frozenset()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"quant_info": 1}', "'quant_info' is 1"),
        ('{"quant_info": {}, "op_infos": {}}', "unknown key 'op_infos'"),
        (document(scale=None), "key 'scale' is missing"),
        (document(extra=1), "unknown key 'extra'"),
        (document(bit_width=9, q_min=0), "tensor_max|'q_max'|bits"),
        (document(q_min=0, q_max=127), "'q_max' is 127, but 8 bits have 255"),
        (document(tensor_max=1.0), "'tensor_max' is 1"),
        (document(per_channel=True), "'scale' is 0.5, not a list"),
        (document(scale=float("nan")), "not a finite number"),
        (document(sym=True, q_min=0, q_max=255), "not 0, but 'sym' is true"),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)
