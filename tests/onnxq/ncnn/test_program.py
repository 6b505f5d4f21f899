"""ncnn's two files: layers as text, weights as bytes, and back."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError, SaveError
from onnxq.ncnn.program import Layer, read_bin, read_param, sizes, write_bin, write_param

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def codes(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape).astype(np.int8)


LAYERS = [
    Layer("Input", "x", (), ("x",), {0: 5, 1: 4, 2: 3}),
    Layer(
        *("Convolution", "c", ("x",), ("a",), {0: 3, 1: 1, 5: 1, 6: 9, 8: 2}),
        (codes(9), floats(3), floats(3), floats(1)),
    ),
    Layer(
        *("ConvolutionDepthWise", "d", ("a",), ("b",), {0: 3, 1: 1, 6: 3, 7: 3, 8: 1}),
        (codes(3), floats(3), floats(1)),
    ),
    Layer("Clip", "k", ("b",), ("e",), {0: 0.0, 1: 6.0}),
    Layer("InnerProduct", "f", ("e",), ("y",), {0: 2, 1: 1, 2: 6}, (floats(6), floats(2))),
]


def read(param: str, data: bytes) -> list[Layer]:
    return read_bin(data, read_param(param))


def same(first: list[Layer], second: list[Layer]) -> bool:
    return all(
        (a.type, a.name, a.bottoms, a.tops, a.params)
        == (b.type, b.name, b.bottoms, b.tops, b.params)
        and all(
            x.dtype == y.dtype and (x == y).all() for x, y in zip(a.weights, b.weights, strict=True)
        )
        for a, b in zip(first, second, strict=True)
    )


def test_text() -> None:
    assert write_param(LAYERS).splitlines()[:4] == [
        "7767517",
        "5 5",
        "Input x 0 1 x 0=5 1=4 2=3",
        "Convolution c 1 1 x a 0=3 1=1 5=1 6=9 8=2",
    ]
    assert "Clip k 1 1 b e 0=0.000000000e+00 1=6.000000000e+00" in write_param(LAYERS)


def test_bytes() -> None:
    data = write_bin(LAYERS)
    conv = LAYERS[1]
    assert data[:4] == struct.pack("<I", 0x000D4B38)
    assert data[4:13] == conv.weights[0].tobytes()
    assert data[13:16] == bytes(3)  # up to a multiple of four
    assert data[16:28] == conv.weights[1].tobytes()
    assert len(data) == 4 + 12 + 4 * 7 + 4 + 4 + 4 * 4 + 4 + 4 * 8


def test_both_files_are_read_back() -> None:
    assert same(read(write_param(LAYERS), write_bin(LAYERS)), LAYERS)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_keep_every_bit(value: float) -> None:
    layers = [Layer("Input", "x", (), ("x",)), Layer("Clip", "c", ("x",), ("y",), {0: value})]
    assert read_param(write_param(layers))[1].number(0, 1.0) == value


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda t: t.replace("7767517", "7767516"), "first line"),
        (lambda t: t.replace("5 5\n", "6 5\n"), "promises"),
        (lambda t: t.rsplit("\n", 2)[0] + "\n", "promises"),
        (lambda t: t.replace("1 1 x a", "one 1 x a"), "line 4"),
        (lambda t: t.replace("Clip k 1 1 b e", "Clip k 1 9 b e"), "line 6"),
        (lambda t: t.replace("0=3 1=1 5=1", "0=3 1=nan 5=1"), "line 4"),
        (lambda t: t.replace("1 1 b e", "1 1 z e"), "blob 'z' has no producer before it"),
        (lambda t: t.replace("1 1 b e", "1 1 b a"), "made twice"),
        (lambda t: t.replace("6=9", "6=9.5"), "not an integer"),
        (lambda t: t.replace("6=9", "6=8"), "tag|bytes"),
        (lambda t: t.replace("6=9", "6=9 6=9"), "line 4 .*duplicate parameter 6"),
        (lambda t: t.replace("6=9", "6=1_0"), 'line 4 .*value "1_0" is not a 64-bit'),
        (lambda t: t.replace("6=9", "6=4294967296"), "line 4 .*32 bits"),
        (lambda t: t.replace("6=9", "6=1e39"), "line 4 .*float32"),
        (lambda t: t.replace("6=9", "six=9"), 'line 4 .*parameter "six"'),
        (lambda t: t.replace("1 1 b e", "1 1 a e"), "reads blob 'a' too, without a Split"),
        (lambda t: t.replace("Clip k 1 1 b e", "Clip k"), "line 6 .*number of blobs"),
    ],
)
def test_a_bad_text_is_refused(edit: Any, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read(edit(write_param(LAYERS)), write_bin(LAYERS))


def test_every_cut_of_the_bytes_is_refused() -> None:
    text, data = write_param(LAYERS), write_bin(LAYERS)
    for end in range(len(data)):
        with pytest.raises(LoadError):
            read(text, data[:end])
    with pytest.raises(LoadError, match="bytes"):
        read(text, data + bytes(4))


def test_a_tag_that_is_none_is_refused() -> None:
    data = struct.pack("<I", 0x01306B47) + write_bin(LAYERS)[4:]  # the one for float16
    with pytest.raises(LoadError, match="tag 0x01306b47"):
        read(write_param(LAYERS), data)


def test_numbers_that_are_not_finite_are_refused() -> None:
    data = write_bin(LAYERS)
    bad = data[:16] + struct.pack("<f", float("nan")) + data[20:]
    with pytest.raises(LoadError, match=r"'c' \(Convolution\).*not finite"):
        read(write_param(LAYERS), bad)
    wrong = Layer("PReLU", "p", ("x",), ("y",), {0: 1}, (np.array([np.inf], np.float32),))
    with pytest.raises(SaveError, match="'p'"):
        write_bin([wrong])


@pytest.mark.parametrize("name", ["", "a b", "a\n", "x" * 256])
def test_names_that_ncnn_cannot_read_are_refused(name: str) -> None:
    with pytest.raises(SaveError, match="cannot be a name"):
        write_param([Layer("Input", name, (), ("x",))])


def test_layers_without_weights() -> None:
    assert sizes(LAYERS[0]) == sizes(LAYERS[3]) == []
