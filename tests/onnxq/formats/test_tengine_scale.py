"""Tengine's scale file, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from onnxq.formats.tengine_scale import FORMAT
from onnxq.graph import Model, from_proto
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from tests.models.zoo_build import Build
from tests.onnxq.formats.check import (
    MODEL,
    check_inverse,
    only_rows,
    refuses_rows,
    refuses_text,
    row,
)


@given(only_rows("uint8", weights=False))
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_inverse(FORMAT, table)


def test_layout() -> None:
    rows = [row("x", "uint8", 0.5, 3), row("c", "int8", 0.25, 1)]
    rows.append(row("mat.w", "uint8", 0.25, role=Role.WEIGHT))
    assert FORMAT.write(QParamTable(rows), MODEL) == "x 0.5 3\nc 0.25 129\n"


def relu_net() -> Model:
    b = Build()
    made = b.op("Relu", b.conv(b.input("x", [1, 3, 8, 8]), 3, 4), out="r")
    return from_proto(b.model(b.op("Relu", b.op("Add", made, made, out="a"), out="y")))


def test_a_convolution_in_front_of_relu_gets_the_line_of_the_relu() -> None:
    net = relu_net()
    (conv,) = net.nodes("Conv")
    table = QParamTable([row("r", "uint8", 0.5), row("y", "uint8", 0.25)])
    text = FORMAT.write(table, net)
    assert text == f"r 0.5 0\ny 0.25 0\n{conv.outputs[0].name} 0.5 0\n"
    assert FORMAT.read(text, net).rows == table.rows


def test_lines_of_weights_are_read() -> None:
    (found,) = FORMAT.read("mat.w 0.5 7\n", MODEL)
    assert found == row("mat.w", "uint8", 0.5, 7, role=Role.WEIGHT)


def test_rows_that_do_not_fit_are_refused() -> None:
    refuses_rows(
        FORMAT,
        [row("a b"), row("c", "uint16"), row("u", "uint8", [0.1] * 2, axis=1)],
        "'a b': its name contains spaces",
        "'c': codes 0..65535",
        "'u': one scale per channel",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x 0.5 3\ny 0.5", "line 2 is not"),
        ("x 0.5 3\n\nx 0.5 3", "line 3, tensor 'x': duplicate line"),
        ("x nan 3", "line 1, tensor 'x'.*scale \"nan\""),
        ("x -0.5 3", "scale -0.5"),
        ("x 0 3", "scale 0"),
        ("x 1e 3", "line 1, tensor 'x': scale \"1e\" is not a finite decimal"),
        ("x 0.5 1_0", "line 1, tensor 'x': zero point \"1_0\" is not a 64-bit decimal integer"),
        ("x 0.5 \u0661", "line 1, tensor 'x': zero point"),
        ("x 0x1p-3 1", "line 1, tensor 'x': scale"),
        ("x +0.5 1", "line 1, tensor 'x': scale"),
        ("x 0.5 256", "zero point 256"),
        ("x 0.5 3.5", "line 1, tensor 'x': zero point \"3.5\""),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)


def test_scales_are_exact() -> None:
    scale = np.float32(0.1) * np.float32(1.1)
    (found,) = FORMAT.read(FORMAT.write(QParamTable([row("x", scale=scale)]), MODEL), MODEL)
    assert found.scale == scale
