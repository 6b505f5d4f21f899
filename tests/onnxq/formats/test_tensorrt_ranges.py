"""TensorRT's range file: absmax = 127 * scale, exactly, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError, SaveError
from onnxq.formats.tensorrt_ranges import FORMAT, read, write
from onnxq.graph import new_model
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype

MODEL = new_model("empty")
SMALLEST, LARGEST = 2.0**-149, float(np.finfo(np.float32).max)
scales = st.floats(SMALLEST, LARGEST, width=32)
NAMES = [
    *("conv1.out", "a:0", "a: 3c008912", ":", " spaced name ", "größe", "模型/输出", '{"x": "y"}'),
    *("back\\slash", "line\nbreak", "tab\t", "nul\x00", "\u2028", "\x85", "😀", "tensorrt"),
]


def table(**rows: float) -> QParamTable:
    return QParamTable([row(name, scale) for name, scale in rows.items()])


def row(name: str, scale: Any, **more: Any) -> QParams:
    return QParams(name, qtype("int8"), np.asarray(scale), np.zeros(()), **more)


def ranges(text: str) -> dict[str, float]:
    document = json.loads(text)
    assert list(document) == ["tensorrt"]
    assert list(document["tensorrt"]) == ["blob_range"]
    found: dict[str, float] = document["tensorrt"]["blob_range"]
    return found


def test_layout() -> None:
    text = write(table(x=0.5, y=2.0), MODEL)
    assert json.loads(text) == {"tensorrt": {"blob_range": {"x": 63.5, "y": 254.0}}}
    assert text.endswith("}\n")


@given(scales)
def test_absmax_is_127_scales_exactly(scale: float) -> None:
    absmax = ranges(write(table(x=scale), MODEL))["x"]
    assert absmax == 127 * scale
    # Exactly: integers of Python do not round.
    top, bottom = scale.as_integer_ratio()
    assert absmax.as_integer_ratio()[0] * bottom == 127 * top * absmax.as_integer_ratio()[1]


@pytest.mark.parametrize("low", [-128, -127])
def test_the_trained_lower_bound_does_not_widen_the_range(low: int) -> None:
    written = ranges(write(QParamTable([row("x", 0.1, lo=low)]), MODEL))
    assert written["x"] == 127 * float(np.float32(0.1))


@given(st.dictionaries(st.text(min_size=1), scales, max_size=5))
def test_read_is_the_inverse_of_write(found: dict[str, float]) -> None:
    before = QParamTable([row(name, scale) for name, scale in found.items()])
    text = write(before, MODEL)
    after = read(text, MODEL)
    assert after.rows == before.rows
    assert write(after, MODEL) == text


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_survive(name: str) -> None:
    before = QParamTable([row(name, 0.3), row(name + "'", 0.4)])
    assert read(write(before, MODEL), MODEL).rows == before.rows


def test_names_stay_readable() -> None:
    assert '"größe"' in write(QParamTable([row("größe", 1)]), MODEL)


def test_only_activations_are_written() -> None:
    rows = [row("x", 1), row("w", 1, role=Role.WEIGHT), row("b", 1, role=Role.BIAS)]
    assert list(ranges(write(QParamTable(rows), MODEL))) == ["x"]
    assert read(write(QParamTable(rows), MODEL), MODEL).rows == rows[:1]


def test_a_range_is_for_all_readers_or_refused() -> None:
    rows = [row("x", 0.5), row("x", 2.0), row("y", 1.0, readers=(Reader("c", 0),)), row("z", 1.0)]
    with pytest.raises(SaveError, match="2 of the tensors cannot be written") as caught:
        write(QParamTable(rows), MODEL)
    assert "'x': it has 2 quantizers" in caught.value.what
    assert "'y': only some of its consumers see it quantized" in caught.value.what


def test_what_tensorrt_cannot_have_is_refused_at_once() -> None:
    rows = [
        row("x", 1),
        QParams("a", qtype("uint8"), np.ones(()), np.asarray(3)),
        QParams("b", qtype("int8"), np.ones(()), np.asarray(-5)),
        QParams("c", qtype("int8"), np.ones(4), np.zeros(()), axis=1),
    ]
    with pytest.raises(SaveError) as caught:
        write(QParamTable(rows), MODEL)
    for text in ("3 of the tensors", "'a': type uint8", "'b': zero point -5", "'c': one"):
        assert text in caught.value.what


def test_an_empty_table() -> None:
    assert len(read(write(QParamTable(), MODEL), MODEL)) == 0


def test_what_is_read_is_symmetric_int8() -> None:
    (found,) = read('{"tensorrt": {"blob_range": {"x": 254}}}', MODEL)
    assert found == row("x", 2.0)
    assert found.is_symmetric
    assert (found.lo, found.hi, found.role) == (-128, 127, Role.ACTIVATION)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        '{"tensorrt": {"blob_range": {"x": 1}',
        "[]",
        "3",
        "null",
        "{}",
        '{"tensorrt": {}}',
        '{"tensorrt": []}',
        '{"tensorrt": {"blob_range": []}}',
        '{"tensorrt": {"blob_range": null}}',
        '{"tensorrt": {"blob_range": 4}}',
    ],
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(
        LoadError, match=r"not a TensorRT range file|is missing|not an object"
    ) as caught:
        read(text, MODEL)
    assert "blob_range" in caught.value.fix


@pytest.mark.parametrize(
    "value",
    [
        *("0", "-0.0", "-1", "NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 390),
        *('"1"', "true", "null", "[1]", "{}", "1e60"),
    ],
)
def test_a_bad_range_names_the_tensor(value: str) -> None:
    text = '{"tensorrt": {"blob_range": {"good": 1.0, "größe:0": VALUE}}}'.replace("VALUE", value)
    with pytest.raises(LoadError, match="tensor 'größe:0'"):
        read(text, MODEL)


def test_a_range_below_every_float32_scale_names_the_tensor() -> None:
    with pytest.raises(LoadError, match="tensor 'x'"):
        read('{"tensorrt": {"blob_range": {"x": 1e-60}}}', MODEL)


def test_a_tensor_given_twice_is_refused() -> None:
    with pytest.raises(LoadError, match="duplicate key 'x'"):
        read('{"tensorrt": {"blob_range": {"x": 1, "y": 2, "x": 3}}}', MODEL)


def test_format_value() -> None:
    assert FORMAT.name == "tensorrt-ranges"
    assert (FORMAT.write, FORMAT.read) == (write, read)
    assert "JSON" in FORMAT.summary
    assert FORMAT.recognises(write(table(x=1.0), MODEL))
    assert not FORMAT.recognises('{"tensorrt": []}')
    assert not FORMAT.weights
