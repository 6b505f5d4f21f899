"""Widths, offsets and refusals shared by AIMET's three versions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError, SaveError
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from onnxq.side_files import aimet as codes


@given(st.integers(0, 255), st.floats(2.0**-20, 1e3, width=32))
def test_the_offset_is_the_smallest_value_in_steps(code: int, scale: float) -> None:
    for kind, zero in (("uint8", code), ("int8", code - 128)):
        row = QParams("x", qtype(kind), np.asarray(scale), np.asarray(zero))
        assert codes.offset_of(row) == -code
        assert row.range[0] == codes.offset_of(row) * np.float64(row.scale)


def test_everything_that_cannot_be_written_is_told_at_once() -> None:
    def row(name: str, **more: object) -> QParams:
        return QParams(name, qtype("int8"), np.ones(()), np.zeros(()), **more)  # type: ignore[arg-type]

    fp8 = QParams("h", qtype("float8e4m3fn"), np.ones(()), np.zeros(()))
    table = QParamTable(
        [row("a"), row("b"), row("b"), row("c", readers=(Reader("n", 0),)), row("d", lo=-127), fp8]
    )
    table.add(row("e", role=Role.WEIGHT))
    with pytest.raises(SaveError) as caught:
        codes.writable(table, "9", lambda r: "of its name" if r.tensor == "e" else None)
    for text in (
        "5 of the tensors",
        "'b': it has 2",
        "'c': only some",
        "-127..127",
        "float8",
        "its name",
    ):
        assert text in caught.value.what
    assert "'a'" not in caught.value.what
    assert codes.writable(QParamTable([row("a")]), "9", lambda r: None) == [row("a")]


def test_a_long_list_is_cut() -> None:
    rows = [QParams(f"t{i}", qtype("int8"), np.ones(()), np.zeros(()), lo=-127) for i in range(25)]
    with pytest.raises(SaveError, match="and 5 more"):
        codes.writable(QParamTable(rows), "9", lambda r: None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "version"),
        ('{"version": "2"}', "version"),
        ('{"version": "1"}', "has no activation_encodings or param_encodings"),
        ('{"version": "1", "activations_encodings": []}', "unknown key 'activations_encodings'"),
        ('{"version": "1", "version": "1"}', "duplicate key"),
        ('{"version":\n "1",', "line 2"),
    ],
)
def test_another_document_is_refused(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        list(codes.groups(text, "1"))


def test_groups() -> None:
    text = '{"version": "1", "producer": {}, "param_encodings": [1], "activation_encodings": [2]}'
    assert list(codes.groups(text, "1")) == [
        ("activation_encodings", Role.ACTIVATION, [2]),
        ("param_encodings", Role.WEIGHT, [1]),
    ]
