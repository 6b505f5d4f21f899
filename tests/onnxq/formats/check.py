"""What holds for every side file: read is the inverse of write, and errors tell the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from onnxq.errors import LoadError, SaveError
from onnxq.graph import Model
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.side_files.side_file import SideFile
from onnxq.workflows.encodings import detect
from tests.onnxq.formats.tables import ACTIVATIONS, SCALES, SHAPES, model


def named_model() -> Model:
    """The float model of all tables, every node named after what it makes."""
    made = model()
    for node in made.nodes():
        node.name = f"node_{node.outputs[0].name}"
    return made


MODEL = named_model()


def row(name: str = "x", kind: str = "uint8", scale: Any = 0.1, zero: Any = 0, **more: Any) -> Any:
    """One row."""
    return QParams(name, qtype(kind), np.asarray(scale), np.asarray(zero), **more)


def check_inverse(side_file: SideFile, table: QParamTable) -> str:
    """Write and read a table; returns the text."""
    text = side_file.write(table, MODEL)
    assert isinstance(text, str)
    if table.rows:
        assert detect(text.encode(), "file") is side_file
    again = side_file.read(text, MODEL)
    assert sorted(again.rows, key=lambda r: r.tensor) == sorted(table.rows, key=lambda r: r.tensor)
    assert side_file.write(again, MODEL) == text
    return text


def check_exact_inverse(side_file: SideFile, table: QParamTable) -> None:
    """The same, and the rows come back in their order."""
    text = check_inverse(side_file, table)
    assert side_file.read(text, MODEL).rows == table.rows


def refuses_rows(side_file: SideFile, rows: list[QParams], *texts: str) -> None:
    """Writing fails, and the message has these texts."""
    with pytest.raises(SaveError) as caught:
        side_file.write(QParamTable(rows), MODEL)
    for text in texts:
        assert text in caught.value.what
    assert caught.value.fix


def refuses_text(side_file: SideFile, text: str, why: str) -> None:
    """Reading fails, and the message matches."""
    with pytest.raises(LoadError, match=why) as caught:
        side_file.read(text, MODEL)
    assert caught.value.fix


def only_rows(
    kind: str, *, weights: bool = True, zero: bool = True, lo: int | None = None
) -> st.SearchStrategy[QParamTable]:
    """Tables of one type with one scale per tensor."""
    held = qtype(kind)
    low = held.lo if lo is None else lo

    @st.composite
    def tables(draw: st.DrawFn) -> QParamTable:
        names = [*ACTIVATIONS, *(SHAPES if weights else ())]
        made = QParamTable()
        for name in draw(st.lists(st.sampled_from(names), unique=True)):
            code = draw(st.integers(low, held.hi)) if zero else 0
            role = Role.WEIGHT if name in SHAPES else Role.ACTIVATION
            made.add(row(name, kind, draw(SCALES), code, lo=low, role=role))
        return made

    return tables()
