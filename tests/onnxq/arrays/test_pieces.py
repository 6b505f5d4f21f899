"""Blocks cover an array once and in order, and what is made of them is out of the heap."""

from __future__ import annotations

import gc
import math
import tempfile
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.arrays import pieces
from onnxq.errors import SaveError

SHAPES = st.lists(st.integers(0, 7), max_size=4)


@given(SHAPES, st.integers(1, 40))
def test_blocks_follow_each_other_and_are_contiguous(shape: list[int], most: int) -> None:
    whole = np.arange(math.prod(shape)).reshape(shape)
    parts = [whole[at] for at in pieces.blocks(shape, most)]
    assert all(part.size <= most for part in parts)
    together = [part.reshape(-1) for part in parts]
    assert np.array_equal(np.concatenate([[], *together]), whole.reshape(-1))


@given(SHAPES, st.integers(1, 40))
def test_the_span_of_a_block_is_where_it_lies(shape: list[int], most: int) -> None:
    whole = np.arange(math.prod(shape)).reshape(shape)
    for at in pieces.blocks(shape, most):
        start, stop = pieces.span(shape, at)
        assert np.array_equal(whole.reshape(-1)[start:stop], whole[at].reshape(-1))


@pytest.mark.parametrize("dtype", [np.int8, np.float32, ml_dtypes.int4])
@pytest.mark.parametrize("size", [12, 1000])
def test_parts_become_one_array(size: int, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 100)
    values = (np.arange(size) % 7).astype(dtype).reshape(4, -1)
    made = pieces.assembled(
        values.shape, dtype, (values[at] for at in pieces.blocks((4, size // 4)))
    )
    assert made.dtype == values.dtype
    assert np.array_equal(made, values)


def test_a_large_array_lies_in_a_file_that_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    part = np.ones(pieces.PIECE, np.float32)
    tracemalloc.start()
    try:
        made = pieces.assembled((32, pieces.PIECE), np.float32, (part for _ in range(32)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.nbytes == 32 * part.nbytes
    assert peak < 2 * part.nbytes
    assert made[17, 3] == 1.0
    assert not made.flags.writeable
    del made
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_no_room_is_an_error_that_names_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/full/nowhere")
    with pytest.raises(SaveError, match="/dev/full/nowhere") as caught:
        pieces.assembled((pieces.PIECE + 1,), np.int8, [np.zeros(pieces.PIECE + 1, np.int8)])
    assert "TMPDIR" in caught.value.fix


def test_equality_and_magnitude(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 4)
    a = np.arange(-12, 12, dtype=np.float32).reshape(2, 12)
    b = a.copy()
    assert pieces.equal(a, b)
    b[1, 11] = 0
    assert not pieces.equal(a, b)
    assert not pieces.equal(a, a[:1])
    assert pieces.largest(pieces.cut(a)) == 12
    assert pieces.largest([]) == 0
    a[0, 0] = np.nan
    assert math.isnan(pieces.largest(pieces.cut(a)))


@given(st.integers(0, 40), st.integers(0, 9), st.integers(1, 30))
def test_slices_of_rows_cover_them_in_order(rows: int, width: int, most: int) -> None:
    found = list(pieces.row_slices(rows, width, most))
    together = [at for part in found for at in range(rows)[part]]
    assert together == list(range(rows))
    sizes = [part.stop - part.start for part in found]
    assert max(sizes) - min(sizes) <= 1
    assert all(size * width <= most or size <= 1 for size in sizes)
