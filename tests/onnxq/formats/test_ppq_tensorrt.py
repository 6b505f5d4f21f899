"""PPQ's TensorRT ranges, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from onnxq.formats.ppq_tensorrt import FORMAT
from onnxq.quant.qparam_table import QParamTable
from tests.onnxq.formats.check import (
    MODEL,
    check_inverse,
    only_rows,
    refuses_rows,
    refuses_text,
    row,
)


@given(only_rows("int8", weights=False, zero=False))
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_inverse(FORMAT, table)


def test_layout() -> None:
    text = FORMAT.write(QParamTable([row("x", "int8", 0.5)]), MODEL)
    assert json.loads(text) == {"act_quant_info": {"x": 63.5}}


def test_asymmetric_rows_are_refused() -> None:
    refuses_rows(FORMAT, [row("x", "uint8", 0.5, 3)], "'x': type uint8", "zero point 3")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"act_quant_info": 3}', "'act_quant_info' is 3"),
        ('{"act_quant_info": {"x": 0}}', "range of tensor 'x' is 0"),
        ('{"act_quant_info": {"x": "1"}}', "range of tensor 'x' is '1'"),
        ('{"act_quant_info": {"x": Infinity}}', "range of tensor 'x' is inf"),
        ('{"act_quant_info": {"x": 1}, "other": 2}', "unknown key 'other'"),
        ('{"act_quant_info": ', "line 1"),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)
