"""Large arrays, computed piece by piece and kept out of memory.

An elementwise result need not be computed as a whole: x / s in float64 takes eight bytes for each
byte of a weight. Arrays of more than `PIECE` elements are cut into blocks that follow each other in
C order, and the results go to an unnamed, memory-mapped temporary file: the system may write such
pages to disk, but would have to keep heap pages in memory. The file disappears with the last array
that views it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxq.disk.scratch import PREFIX, scratch_errors

Array = npt.NDArray[Any]
Index = tuple[slice, ...]
"""One slice for each axis."""

PIECE = 1 << 18
"""Most elements of a block: 2 MB in float64, which caches hold."""

ROWS = 1 << 21
"""Most elements of a slice of rows: rows that are columns in memory are slow to gather in less."""


def is_large(shape: Sequence[int]) -> bool:
    """Whether an array of this shape is worked on in pieces."""
    return math.prod(shape) > PIECE


def blocks(shape: Sequence[int], most: int | None = None) -> Iterator[Index]:
    """Cut an array of this shape into blocks of at most `most` elements, in C order."""
    most = PIECE if most is None else most
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= most:
        axis -= 1
        inner *= shape[axis]
    if not inner:
        return
    if not axis:
        yield (slice(None),) * len(shape)
        return
    axis -= 1
    step = max(1, most // inner)
    rest = (slice(None),) * (len(shape) - axis - 1)
    for outer in product(*map(range, shape[:axis])):
        front = tuple(slice(i, i + 1) for i in outer)
        for start in range(0, shape[axis], step):
            yield (*front, slice(start, min(start + step, shape[axis])), *rest)


def row_slices(rows: int, width: int, most: int | None = None) -> Iterator[slice]:
    """Cut rows of `width` elements into slices of like size, of at most `most` elements.

    No row is cut: what is computed of a row is the same, to the bit, as in the whole array.
    """
    step = max(1, (ROWS if most is None else most) // max(1, width))
    parts = max(1, -(-rows // step))
    ends = [rows * part // parts for part in range(parts + 1)]
    return (slice(start, stop) for start, stop in pairwise(ends))


def span(shape: Sequence[int], at: Index) -> tuple[int, int]:
    """The first element of a block and the one after its last, counted in C order."""
    ends = [each.indices(size) for each, size in zip(at, shape, strict=True)]
    first = 0
    for size, (start, _, _) in zip(shape, ends, strict=True):
        first = first * size + start
    return first, first + math.prod(stop - start for start, stop, _ in ends)


def assembled(shape: Sequence[int], dtype: Any, parts: Iterable[Array]) -> Array:
    """The array of the concatenated `parts`; a large one is stored in a file, read-only."""
    dtype = np.dtype(dtype)
    if not is_large(shape):
        flat = [np.asarray(part, dtype).reshape(-1) for part in parts]
        return np.concatenate([np.empty(0, dtype), *flat]).reshape(shape)
    with scratch_errors(), tempfile.TemporaryFile(prefix=PREFIX) as file:
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype).reshape(-1).view(np.uint8).data)
        file.flush()
        size = math.prod(shape) * dtype.itemsize
        whole = np.memmap(file, np.uint8, "r", shape=(size,))
    values: Array = np.asarray(whole).view(dtype)
    return values.reshape(shape)


def equal(a: Array, b: Array) -> bool:
    """`np.array_equal`, without a large array of answers."""
    return a.shape == b.shape and all(np.array_equal(a[at], b[at]) for at in blocks(a.shape))


def largest(parts: Iterable[Array]) -> float:
    """The largest magnitude of all parts; 0 if empty, NaN if there is one."""
    ends = [float(np.abs(part).max(initial=0.0)) for part in parts]
    return float(np.max(ends, initial=0.0))


def cut(values: Array) -> Iterator[Array]:
    """The blocks of an array."""
    return (values[at] for at in blocks(values.shape))
