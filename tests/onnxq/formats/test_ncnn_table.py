"""ncnn's table: multipliers by layer, exactly back, strict about lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError, SaveError
from onnxq.formats.ncnn_table import FORMAT, int8_layers, read, write
from onnxq.graph import Model, load
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from tests.models.build import parse
from tests.models.foreign_files import FOLDER
from tests.onnxq.formats.tables import SCALES

FIXTURE = FOLDER / "A1" / "esp-ppq-ncnn"


def model() -> Model:
    return parse(
        """g (float[1,2,4,4] x) => (float[1,3] y)
        <float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}, float[3,1,4,4] v, float[3,3] u> {
            [c] a = Conv(x, w)
            r = Relu(a)
            [d] e = Conv<group=3>(r, v)
            f = Flatten(e)
            [g] y = Gemm(f, u)
        }""".replace("v,", f"v = {{{', '.join(['1'] * 48)}}},").replace(
            "u>", f"u = {{{', '.join(['1'] * 9)}}}>"
        )
    )


def row(name: str, scale: Any, **more: Any) -> QParams:
    more = {"lo": -127, **more}
    return QParams(name, qtype(more.pop("qtype", "int8")), np.asarray(scale), np.zeros(()), **more)


def weight(name: str, scale: Any, axis: int | None = 0, **more: Any) -> QParams:
    return row(name, scale, axis=axis, role=Role.WEIGHT, **more)


def table() -> QParamTable:
    return QParamTable(
        [
            weight("w", [0.5, 0.25, 2.0]),
            weight("v", [1.0, 2.0, 4.0]),
            weight("u", [0.1, 0.2, 0.3], axis=1),
            *(row("x", 0.5), row("r", 0.125), row("f", 0.3)),
        ]
    )


def test_layout() -> None:
    lines = write(table(), model()).splitlines()
    assert lines[:2] == ["c_param_0 2.0 4.0 0.5", "d_param_0 1.0 0.5 0.25"]
    assert lines[3:5] == ["c 2.0", "d 8.0"]
    assert [line.split()[0] for line in lines] == [
        *("c_param_0", "d_param_0", "g_param_0", "c", "d", "g"),
    ]


@given(st.lists(SCALES, min_size=6, max_size=6))
def test_read_is_the_inverse_of_write(scales: list[float]) -> None:
    rows = [weight("w", scales[:3]), row("x", scales[3]), weight("u", scales[3:], 1)]
    before = QParamTable([rows[0], rows[2], rows[1], row("f", scales[0])])
    text = write(before, model())
    after = read(text, model())
    assert after.rows == before.rows
    assert write(after, model()) == text


def test_one_scale_is_repeated_for_every_channel() -> None:
    text = write(QParamTable([weight("w", 0.5, None), row("x", 1.0)]), model())
    assert text == "c_param_0 2.0 2.0 2.0\nc 1.0\n"


def test_other_readers_see_the_tensor_unrounded() -> None:
    shared = parse(
        """g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] w = {1, 2, 3, 4}> {
            [c] a = Conv(x, w)
            y = Add(a, x)
        }"""
    )
    *_, found = read("c_param_0 1 1\nc 2\n", shared)
    assert found.readers == (Reader("a", 0),)


def test_a_graph_output_stays_unrounded() -> None:
    leaving = parse(
        """g (float[1,2,4,4] x) => (float[1,2,4,4] r, float[1,2,4,4] y)
        <float[2,2,1,1] w = {1, 2, 3, 4}> {
            r = Relu(x)
            [c] y = Conv(r, w)
        }"""
    )
    rows = [weight("w", [1.0, 1.0]), row("r", 0.5, readers=(Reader("y", 0),))]
    text = write(QParamTable(rows), leaving)
    assert read(text, leaving).rows == rows


@pytest.mark.parametrize(
    ("rows", "name", "why"),
    [
        ([weight("w", 1.0, None), row("x", 1.0, lo=-128)], "x", r"range -128\.\.127"),
        ([weight("w", 1.0, None), row("x", 1.0, qtype="uint8", lo=0)], "x", "uint8"),
        ([weight("w", [1.0, 2.0], 1), row("x", 1.0)], "w", "output channels"),
        ([weight("w", 1.0, None, qtype="uint8", lo=0), row("x", 1.0)], "w", "uint8"),
        ([weight("w", 1.0, None)], "w", "no int8 layer"),
        ([row("y", 1.0)], "y", "no int8 layer"),
        ([weight("w", 1.0, None), row("x", 1.0), row("x", 2.0)], "x", "several"),
    ],
)
def test_rows_that_are_refused(rows: list[QParams], name: str, why: str) -> None:
    with pytest.raises(SaveError, match=f"'{name}': .*{why}"):
        write(QParamTable(rows), model())


def test_codes_that_ncnn_clamps_are_refused() -> None:
    low = weight("w", 0.01, None, lo=-128)
    assert "c_param_0" in write(
        QParamTable([low, row("x", 1.0)]), model()
    )  # all codes are positive
    negative = parse(
        "g (float[1,1,1,1] x) => (float[1,1,1,1] y) <float[1,1,1,1] w = {-9}> {[c] y = Conv(x, w)}"
    )
    with pytest.raises(SaveError, match="codes below -127"):
        write(QParamTable([low, row("x", 1.0)]), negative)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("c_param_0 1 1 1\n", "none for its input"),
        ("c 1\n", "no scales for its weight"),
        ("c_param_0 1 1\nc 1\n", "2 scales for 3"),
        ("c_param_0 1 1 1\nc 1 2\n", "2 scales for its input, not one"),
        ("c_param_0 1 1 x\nc 1\n", "line 1"),
        ("c_param_0 1 1 nan\nc 1\n", 'scale "nan" is not a finite'),
        ("c_param_0 1 1 1_0\nc 1\n", 'scale "1_0" is not a finite'),
        ("c_param_0 1 1 0\nc 1\n", "not positive"),
        ("c_param_0 1 1 -1\nc 1\n", "not positive"),
        ("c_param_0 1 1 1\nc\n", "line 2"),
        ("c_param_0 1 1 1\nc 1\nc 2\n", "line 3.*duplicate"),
        ("c_param_0 1 1 1\n\nc 1\n", "line 3.*stops reading"),
        ("z_param_0 1 1 1\nz 1\n", "layer 'z'"),
    ],
)
def test_bad_lines_are_named(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read(text, model())


def test_names_that_the_table_cannot_hold() -> None:
    for name in ("a b", "a_param_0", "x" * 260):
        odd = model()
        int8_layers(odd)["c"].name = name
        with pytest.raises(SaveError, match="name"):
            write(QParamTable([weight("w", 1.0, None), row("x", 1.0)]), odd)


@pytest.mark.skipif(not FIXTURE.is_dir(), reason="the fixtures of other tools are not here")
def test_a_table_of_another_tool_is_read() -> None:
    text = (FIXTURE / "config.table").read_text(encoding="utf-8")
    assert FORMAT.recognises(text)
    found = read(text, load(FIXTURE / "model.onnx"))
    assert len(found.of(Role.WEIGHT)) == len(found.of(Role.ACTIVATION)) == 7


def test_format_value() -> None:
    assert FORMAT.recognises(write(table(), model()))
    for other in ("", "x 1 2\n", '{"c_param_0": 1}', "c_param_0\n", "TRT-8601\nx: 3f800000\n"):
        assert not FORMAT.recognises(other)
    assert (FORMAT.name, FORMAT.suffix, FORMAT.binary) == ("ncnn-table", ".table", False)
