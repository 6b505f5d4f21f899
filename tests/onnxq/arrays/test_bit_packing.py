"""Codes in bytes: the layout by hand, and the inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.arrays.bit_packing import BITS, pack, unpack


@pytest.mark.parametrize(
    ("bits", "codes", "stored"),
    [
        (4, [1, 2, 15, 0], [0x21, 0x0F]),
        (4, [7, 8, 9], [0x87, 0x09]),
        (2, [1, 2, 3, 0, 3], [0b00111001, 0b11]),
        (8, [0, 255, 7], [0, 255, 7]),
    ],
)
def test_lowest_bits_come_first(bits: int, codes: list[int], stored: list[int]) -> None:
    packed = pack(np.array([codes]), bits)
    assert packed.dtype == np.uint8
    assert packed.tolist() == [stored]
    assert unpack(packed, bits, len(codes)).tolist() == [codes]


@given(st.sampled_from(BITS), st.integers(1, 9), st.integers(1, 3), st.integers(0, 2**16))
def test_unpack_undoes_pack(bits: int, count: int, rows: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (rows, 2, count))
    packed = pack(codes, bits)
    assert packed.shape == (rows, 2, -(-count * bits // 8))
    np.testing.assert_array_equal(unpack(packed, bits, count), codes)
