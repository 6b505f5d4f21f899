"""STPU's ranges in MQBench's form, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from onnxq.errors import SaveError
from onnxq.formats.mqbench_stpu import FORMAT
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
from tests.onnxq.formats.tables import model


@given(only_rows("int8", zero=False, lo=-127))
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_inverse(FORMAT, table)


def symmetric(name: str, scale: float, role: Role = Role.ACTIVATION) -> Any:
    return row(name, "int8", scale, lo=-127, role=role)


def test_layout() -> None:
    rows = [symmetric("x", 2.0**-4), symmetric("c", 2.0**-3)]
    rows.append(symmetric("conv.w", 2.0**-9, Role.WEIGHT))
    found = json.loads(FORMAT.write(QParamTable(rows), MODEL))
    # Largest sum: sqrt(4 * 3 * 3) * (127 / 16) * (127 / 512) = 11.8, output 15.9: 2^3 <= 15.9.
    assert found == {
        "x": {"min": -127 / 16, "max": 127 / 16},
        "c": {"min": -127 / 8, "max": 127 / 8, "emin": 127 + 3 - 10},
        "node_c_weights": {"min": -127 / 512, "max": 127 / 512},
        "node_c_bias": {"alpha": 2.0**-13, "zero_point": 0},
    }


def test_a_large_sum_decides_the_exponent() -> None:
    rows = [symmetric("x", 4.0), symmetric("c", 2.0**-3)]
    rows.append(symmetric("conv.w", 1.0, Role.WEIGHT))
    found = json.loads(FORMAT.write(QParamTable(rows), MODEL))
    assert found["c"]["emin"] == 127 + 18 - 10  # 6 * 508 * 127 = 387096 >= 2^18


def test_gemm_has_a_fixed_exponent() -> None:
    found = json.loads(FORMAT.write(QParamTable([symmetric("g", 0.5)]), MODEL))
    assert found["g"]["emin"] == 128


def joined() -> Model:
    b = Build()
    x = b.input("x", [1, 3, 8, 8])
    left = b.op("Relu", b.op("Abs", x, out="a"), out="r")
    return from_proto(b.model(b.op("Concat", left, b.op("Neg", x, out="n"), axis=1, out="y")))


def test_what_relu_and_concat_read_gets_their_range() -> None:
    net = joined()
    table = QParamTable([symmetric("y", 0.5)])
    found = json.loads(FORMAT.write(table, net))
    assert set(found) == {"y", "r", "n", "a"}
    assert len({json.dumps(e) for e in found.values()}) == 1
    assert FORMAT.read(json.dumps(found), net).rows == table.rows


def test_rows_that_do_not_fit_are_refused() -> None:
    refuses_rows(
        FORMAT,
        [
            row("x", "uint8", 0.5),
            row("c", "int8", 0.5),
            symmetric("conv.b", 0.5, Role.WEIGHT),
            row("conv.w", "int8", [0.5] * 6, axis=0, lo=-127, role=Role.WEIGHT),
        ],
        "'x': type uint8",
        "'c': range -128..127",
        "'conv.b': no layer has it",
        "'conv.w': one scale per channel",
    )


def test_layers_need_names() -> None:
    with pytest.raises(SaveError, match="no name of its own"):
        FORMAT.write(QParamTable([symmetric("x", 0.5)]), model())


ENDS = '{"min": -63.5, "max": 63.5}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"x": {"min": -1, "max": 2}}', "'x': -1..2 is not a range around 0"),
        ('{"x": {"min": 1, "max": -1}}', "not a range around 0"),
        ('{"x": {"min": -1}}', "key 'max' is missing"),
        ('{"x": {"min": -1, "max": 1, "emin": 2.5}}', "'emin' is 2.5, not an integer"),
        ('{"x": 3}', "'x' is 3, not an object"),
        ('{"z_bias": {"alpha": 1, "zero_point": 0}}', "'z_bias': no layer has that name"),
        ('{"node_c_bias": {"alpha": 1, "zero_point": 0}}', "has no range"),
        (
            f'{{"x": {ENDS}, "node_c_weights": {ENDS}, '
            '"node_c_bias": {"alpha": 0.3, "zero_point": 0}}',
            "'alpha' is 0.3, not 0.25",
        ),
        (
            f'{{"x": {ENDS}, "node_c_weights": {ENDS}, '
            '"node_c_bias": {"alpha": 0.25, "zero_point": 1}}',
            "'zero_point' is not 0",
        ),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)
