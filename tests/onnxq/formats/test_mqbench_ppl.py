"""PPL's W8A16 parameters in MQBench's form, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from onnxq.formats.mqbench_ppl import FORMAT
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files.rows import unsigned
from tests.onnxq.formats.check import MODEL, check_inverse, refuses_rows, refuses_text, row
from tests.onnxq.formats.tables import BIASES, tables


@given(tables())
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_inverse(FORMAT, QParamTable([unsigned(r) for r in table if r.tensor not in BIASES]))


@given(tables())
def test_signed_rows_read_back_as_the_same_grid(table: QParamTable) -> None:
    rows: list[QParams] = [r for r in table if r.tensor not in BIASES]
    again = FORMAT.read(FORMAT.write(QParamTable(rows), MODEL), MODEL)
    assert again.rows == [unsigned(r) for r in rows]


def test_layout() -> None:
    text = FORMAT.write(QParamTable([row("x", "uint16", 0.5, 3)]), MODEL)
    assert json.loads(text) == {
        "ppl": {
            "x": {
                "step": 0.5,
                "zero_point": 3,
                "min": -1.5,
                "max": 32766.0,
                "bit": 16,
                "type": "biased",
            }
        }
    }


def test_rows_that_do_not_fit_are_refused() -> None:
    narrow, wide = row("x", "int8", lo=-127), row("c", "uint8", [0.1] * 6, axis=1)
    refuses_rows(FORMAT, [narrow, wide], "'x': codes -127..127", "'c': one scale per channel")
    block = row("gemm.w", "int8", [[0.1] * 5] * 4, axis=0, block=2, role=Role.WEIGHT)
    refuses_rows(FORMAT, [block], "one scale per block")


def document(**changes: Any) -> str:
    entry = {"step": 0.5, "zero_point": 3, "min": -1.5, "max": 126.0, "bit": 8, "type": "biased"}
    return json.dumps({"ppl": {"x": {k: v for k, v in (entry | changes).items() if v is not None}}})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "line 1 column 2"),
        ("[]", "not an object"),
        ('{"ppl": {}, "more": 1}', "unknown key 'more'"),
        (document(step=None), "tensor 'x': key 'step' is missing"),
        (document(step=0), "tensor 'x'"),
        (document(step="a"), "'step' is \"a\""),
        (document(zero_point=0.5), "not an integer"),
        (document(bit=40), "40 bits"),
        (document(type="linear"), "'type' is \"linear\""),
        (document(max=120.0), "'max' is 120, but scale and zero point give 126"),
        (document(min=1.0), "'min' is 1"),
        (document(step=[0.5, 0.5], zero_point=[3], min=[-1.5], max=[126.0]), "the lengths of"),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)
