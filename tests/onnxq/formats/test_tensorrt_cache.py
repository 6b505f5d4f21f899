"""TensorRT's calibration cache: big-endian float32 digits of the scale, and back."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError, SaveError
from onnxq.formats.tensorrt_cache import FORMAT, HEADER, read, write
from onnxq.graph import new_model
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype

MODEL = new_model("empty")
SMALLEST, LARGEST = 2.0**-149, float(np.finfo(np.float32).max)
scales = st.floats(SMALLEST, LARGEST, width=32)
names = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1)
NAMES = [
    *("conv1.out", "a:0", "a: 3c008912", ":", "::", " spaced name ", " ", "größe", "模型/输出"),
    *('{"x": "y"}', "back\\slash", "tab\t", "nul\x00", "\u2028", "\x85", "\x0b\x0c\x1c", "😀"),
    *("TRT-8601-EntropyCalibration2", "3c008912"),
]


def row(name: str, scale: Any, **more: Any) -> QParams:
    return QParams(name, qtype("int8"), np.asarray(scale), np.zeros(()), **more)


def table(**rows: float) -> QParamTable:
    return QParamTable([row(name, scale) for name, scale in rows.items()])


def test_layout() -> None:
    assert write(table(x=1.0, y=0.5), MODEL) == (
        "TRT-8601-EntropyCalibration2\nx: 3f800000\ny: 3f000000\n"
    )


def test_the_documented_example() -> None:
    scale = np.array(0x3C008912, ">u4").view(">f4").astype(np.float32)
    assert 127 * float(scale) == pytest.approx(0.99633, abs=1e-5)  # a range of about one
    assert write(table(data=scale), MODEL).splitlines()[1] == "data: 3c008912"
    (found,) = read("TRT-8601-EntropyCalibration2\ndata: 3c008912\n", MODEL)
    assert (found.tensor, found.scale) == ("data", scale)


@given(scales)
def test_digits_are_the_big_endian_float32(scale: float) -> None:
    digits = write(table(x=scale), MODEL).splitlines()[1].removeprefix("x: ")
    assert len(digits) == 8
    assert digits == struct.pack(">f", scale).hex()
    assert struct.unpack(">f", bytes.fromhex(digits)) == (scale,)


@given(st.dictionaries(names, scales, max_size=5))
def test_read_is_the_inverse_of_write(found: dict[str, float]) -> None:
    before = QParamTable([row(name, scale) for name, scale in found.items()])
    text = write(before, MODEL)
    after = read(text, MODEL)
    assert after.rows == before.rows
    assert write(after, MODEL) == text


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_survive_a_file(name: str, tmp_path: Path) -> None:
    before = QParamTable([row(name, 0.3), row(name + "'", 0.4)])
    path = tmp_path / "x.cache"
    path.write_text(write(before, MODEL), encoding="utf-8")
    assert read(path.read_text(encoding="utf-8"), MODEL).rows == before.rows


@pytest.mark.parametrize("name", ["", "a\nb", "a\r", "\n"])
def test_names_that_a_line_cannot_hold_are_refused(name: str) -> None:
    with pytest.raises(SaveError) as caught:
        write(QParamTable([row("x", 1), row(name, 1)]), MODEL)
    assert repr(name) in caught.value.what
    assert "rename" in caught.value.fix


def test_only_activations_are_written() -> None:
    rows = [row("x", 1), row("w", 1, role=Role.WEIGHT), row("b", 1, role=Role.BIAS)]
    assert read(write(QParamTable(rows), MODEL), MODEL).rows == rows[:1]


def test_several_quantizers_of_one_tensor_are_refused() -> None:
    rows = [row("x", 0.5), row("x", 2.0), row("x", 1.0)]
    with pytest.raises(SaveError, match="'x': it has 3 quantizers"):
        write(QParamTable(rows), MODEL)


def test_an_empty_table() -> None:
    assert len(read(write(QParamTable(), MODEL), MODEL)) == 0


@pytest.mark.parametrize("header", ["TRT-7103-EntropyCalibration2", "TRT-10000-MinMaxCalibration"])
def test_caches_of_other_versions_are_read(header: str) -> None:
    (found,) = read(f"{header}\nx: 3F800000\n\n", MODEL)
    assert found == row("x", 1.0)


def test_line_ends_of_other_systems_are_read() -> None:
    text = write(table(x=1.0, y=2.0), MODEL).replace("\n", "\r\n")
    assert read(text, MODEL).rows == table(x=1.0, y=2.0).rows


@pytest.mark.parametrize("text", ["", "\n", "x: 3f800000\n", "{}", "trt-8601\nx: 3f800000"])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(LoadError, match="not a TensorRT calibration cache") as caught:
        read(text, MODEL)
    assert "TRT-<version>" in caught.value.fix


@pytest.mark.parametrize(
    "line",
    [
        *("y", "y 3f800000", "3f800000", ": 3f800000", "y:", "y: ", "y: 3f80000", "y: 3f8000000"),
        *("y: 3f80000g", "y: 3f 80 00 00", "y: 0x3f800000", "y: 0.5", "y: -3f80000"),
        *("y: \uff13f800000", "y: 3f800000 # a remark"),
    ],
)
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(LoadError, match="line 4 is not"):
        read(f"{HEADER}\nx: 3f800000\n\n{line}\nz: 3f800000\n", MODEL)


def test_a_file_cut_short_is_refused() -> None:
    text = write(table(x=1.0, y=0.5), MODEL)
    for end in range(len(text) - 2, len(text) - len("y: 3f000000\n"), -1):
        with pytest.raises(LoadError, match="line 3"):
            read(text[:end], MODEL)


@pytest.mark.parametrize(
    "scale", [0.0, -0.0, -1.0, float("nan"), float("inf"), float("-inf")]
)  # fmt: skip
def test_a_bad_scale_names_the_tensor(scale: float) -> None:
    digits = struct.pack(">f", scale).hex()
    with pytest.raises(LoadError, match="tensor 'größe:0'"):
        read(f"{HEADER}\nx: 3f800000\ngröße:0: {digits}\n", MODEL)


def test_a_tensor_given_twice_is_refused() -> None:
    with pytest.raises(LoadError, match="line 4, tensor 'x': duplicate line"):
        read(f"{HEADER}\nx: 3f800000\ny: 3f800000\nx: 3f000000\n", MODEL)


def test_format_value() -> None:
    assert FORMAT.name == "tensorrt-cache"
    assert (FORMAT.write, FORMAT.read) == (write, read)
    assert "calibration cache" in FORMAT.summary
    assert FORMAT.recognises(write(table(x=1.0), MODEL))
    assert not FORMAT.recognises("x: 3f800000")
    assert (FORMAT.suffix, FORMAT.weights) == (".cache", False)
