"""The neutral table as a file: everything survives."""

from __future__ import annotations

import pytest
from hypothesis import given

from onnxq.errors import LoadError
from onnxq.formats.onnxq_table import FORMAT, read, write
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Reader
from tests.models.canonical import grid
from tests.onnxq.formats.check import check_exact_inverse
from tests.onnxq.formats.tables import model, tables

MODEL = model()


@given(tables(blocks=True))
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_exact_inverse(FORMAT, table)


def test_readers_and_narrow_ranges_survive() -> None:
    rows = [grid("x", 1).with_(readers=(Reader("y", 0),)), grid("x", 3)]
    assert read(write(QParamTable(rows), MODEL), MODEL).rows == rows


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1"),
        ("{}", "not an onnxq quantization table"),
        ('{"schema": "onnxq.qparams", "schema": "x"}', "duplicate key 'schema'"),
        ('{"schema": "onnxq.qparams", "version": 99}', "version 99"),
        (
            '{"schema": "onnxq.qparams", "version": 1, "rows": [{"tensor": "größe"}]}',
            "row for tensor 'größe': key",
        ),
    ],
)
def test_another_document_is_refused(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read(text, MODEL)
