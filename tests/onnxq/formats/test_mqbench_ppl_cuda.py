"""Largest magnitudes for PPL on GPUs, and back."""

from __future__ import annotations

import pytest
from hypothesis import given

from onnxq.formats.mqbench_ppl_cuda import FORMAT, magnitude
from onnxq.quant.qparam_table import QParamTable
from tests.onnxq.formats.check import (
    MODEL,
    check_inverse,
    only_rows,
    refuses_rows,
    refuses_text,
    row,
)


@given(only_rows("int8", weights=False, zero=False, lo=-127))
def test_read_is_the_inverse_of_write_for_symmetric_rows(table: QParamTable) -> None:
    check_inverse(FORMAT, table)


@given(only_rows("uint8", weights=False))
def test_magnitudes_survive_one_rounding(table: QParamTable) -> None:
    again = FORMAT.read(FORMAT.write(table, MODEL), MODEL)
    assert [r.tensor for r in again] == [r.tensor for r in table]
    for mine, theirs in zip(again, table, strict=True):
        assert magnitude(mine) == pytest.approx(magnitude(theirs), rel=2**-23)


def test_layout() -> None:
    rows = [row("x", "uint8", 0.5, 3), row("c", "uint8", 0.5, 200)]
    assert FORMAT.write(QParamTable(rows), MODEL) == "x: 126.0\nc: 100.0\n"


def test_rows_that_do_not_fit_are_refused() -> None:
    refuses_rows(
        FORMAT,
        [row("a\nb"), row("u", "uint8", [0.1] * 2, axis=1)],
        "its name contains a line break",
        "'u': one scale per channel",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x: 1.5\ny 2", "line 2 is not"),
        ("x: 1.5\nx: 1.5", "line 2, tensor 'x': duplicate line"),
        ("x: nan", "line 1, tensor 'x'.*nan"),
        ("x: -1", "scale -0.00"),
        ("x: 1e", "line 1, tensor 'x': magnitude \"1e\" is not a finite decimal number"),
        ("x: 1\ny: 1_0", "line 2, tensor 'y': magnitude \"1_0\""),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)
