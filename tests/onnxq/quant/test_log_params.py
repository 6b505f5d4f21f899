"""Rows of logarithmic grids."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.canonical.fake_quantize_log import logarithmic
from onnxq.errors import QParamsError
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype

REACHES = st.floats(2.0**-100, 2.0**100, width=32)


@given(REACHES, st.sampled_from([None, (Reader("y", 0), Reader("", 0))]))
def test_json_is_exact(reach: float, readers: tuple[Reader, ...] | None) -> None:
    row = LogParams("x", reach, Role.WEIGHT, readers)
    table = QParamTable(logarithmic=[row])
    again = QParamTable.loads(table.dumps())
    assert again == table
    assert again.logarithmic == [row]
    assert not again.is_empty
    assert not len(again)


def test_a_table_without_them_is_written_as_before() -> None:
    assert "logarithmic" not in QParamTable().to_json()
    assert QParamTable().is_empty


def test_a_float32_is_kept() -> None:
    assert LogParams("x", 0.1).data_max == float(np.float32(0.1))


@pytest.mark.parametrize("reach", [0.0, -1.0, np.nan, np.inf, 1e39, 1e-60])
def test_no_other_numbers(reach: float) -> None:
    with pytest.raises(QParamsError, match=r"'x': the largest magnitude .* not a positive finite"):
        LogParams("x", reach)


@given(REACHES, REACHES)
def test_one_key_is_one_grid(one: float, other: float) -> None:
    rows = LogParams("x", one), LogParams("y", other)
    x = np.float32(one) * np.linspace(-2, 2, 999, dtype=np.float32)
    same = np.array_equal(logarithmic(x, one), logarithmic(x, other))
    assert rows[0].same_grid(rows[1]) == same


def test_it_is_no_linear_grid() -> None:
    linear = QParams("x", qtype("int8"), np.array(1.0), np.array(0))
    row = LogParams("x", 1.0)
    assert not row.same_grid(linear)
    assert not linear.same_grid(row)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([], "a row of a quantization table"),
        ({"tensor": "x", "role": "weight"}, "'x'.*data_max"),
        ({"tensor": "x", "role": "wait", "data_max": 1}, "'x'.*wait"),
        ({"tensor": "x", "role": "weight", "data_max": 1, "scale": 1}, "'x': unknown key 'scale'"),
        ({"tensor": "x", "role": "weight", "data_max": -1}, "not a positive"),
        ({"tensor": "x", "role": "weight", "data_max": "wide"}, "'x'"),
        ({"tensor": "x", "role": "weight", "data_max": "1_0"}, "'x': 'data_max'"),
        ({"tensor": "x", "role": "weight", "data_max": True}, "'x': 'data_max'"),
    ],
)
def test_bad_rows_are_refused(row: Any, why: str) -> None:
    document = {"schema": "onnxq.qparams", "version": 1, "rows": [], "logarithmic": [row]}
    with pytest.raises(QParamsError, match=why) as caught:
        QParamTable.loads(json.dumps(document))
    assert caught.value.fix
