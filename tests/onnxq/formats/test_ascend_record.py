"""Ascend's record file, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.formats.ascend_record import FORMAT
from onnxq.graph import from_proto
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Reader, Role
from tests.models.zoo_build import Build
from tests.onnxq.formats.check import MODEL, check_inverse, refuses_rows, refuses_text, row
from tests.onnxq.formats.tables import SCALES, SHAPES

LAYERS = {"x": "conv.w", "c": "up.w", "f": "gemm.w", "g": "gemm_t.w", "h": "mat.w"}
CODES = st.integers(-128, 127)


@st.composite
def tables(draw: st.DrawFn) -> QParamTable:
    data, weights = [], []
    for x in draw(st.lists(st.sampled_from(sorted(LAYERS)), unique=True)):
        w = LAYERS[x]
        data.append(row(x, "int8", draw(SCALES), draw(CODES)))
        shape, axis, _ = SHAPES[w]
        if draw(st.booleans()):
            size = shape[axis]
            scale = draw(st.lists(SCALES, min_size=size, max_size=size))
            zero = draw(st.lists(CODES, min_size=size, max_size=size))
            weights.append(row(w, "int8", np.float32(scale), zero, axis=axis, role=Role.WEIGHT))
        else:
            weights.append(row(w, "int8", draw(SCALES), draw(CODES), role=Role.WEIGHT))
    return QParamTable([*data, *weights])


@given(tables())
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_inverse(FORMAT, table)


TEXT = """record {
  key: "node_c"
  value {
    scale_d: 0.5
    offset_d: -3
    scale_w: 0.25
    offset_w: 0
    channels: 4
    height: 4
    width: 4
  }
}
"""
ROWS = [row("x", "int8", 0.5, -3), row("conv.w", "int8", 0.25, role=Role.WEIGHT)]


def test_layout() -> None:
    assert FORMAT.write(QParamTable(ROWS), MODEL) == TEXT


def test_other_readers_see_the_tensor_as_it_is() -> None:
    b = Build()
    x = b.input("x", [1, 3, 8, 8])
    net = from_proto(b.model(b.op("Add", b.conv(x, 3, 3, out="made"), x, out="y")))
    (conv,) = net.nodes("Conv")
    conv.name = "node_c"
    found = FORMAT.read(TEXT, net)
    assert found.rows[0] == row("x", "int8", 0.5, -3, readers=(Reader("made", 0),))
    assert found.rows[1].tensor == conv.inputs[1].name


def test_rows_that_do_not_fit_are_refused() -> None:
    refuses_rows(FORMAT, [*ROWS, row("p", "int8")], "'p': not all its consumers")
    refuses_rows(FORMAT, [ROWS[0]], "'x': not all its consumers")
    refuses_rows(FORMAT, [row("x", "uint8"), ROWS[1]], "'x': codes 0..255 of uint8")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("node_c", "other"), r"record 'other' \(line 1\): no layer"),
        (TEXT + TEXT, r"record 'node_c' \(line 13\): duplicate record"),
        (
            TEXT.replace("scale_d: 0.5", "scale_d: nan"),
            "line 4, record 'node_c': scale_d \"nan\"",
        ),
        (TEXT.replace("scale_d: 0.5", "scale_d: half"), 'line 4, .*scale_d "half" is not'),
        (TEXT.replace("    offset_d: -3\n", ""), "1 times scale_d, 0 times offset_d"),
        (TEXT.replace("offset_d: -3", "offset_d: -300"), "zero point -300"),
        (TEXT.replace("width", "depth"), "line 10: 'depth: 4' does not belong here"),
        (TEXT.replace("  value {\n", ""), "line 3: .* does not belong here"),
        (TEXT[:-3], "the file ends within a record"),
        (TEXT + "}\n", "line 13"),
        (TEXT + "?", "line 13"),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)
