"""The kernels in C, present if a compiler was available when this package was installed.

`_native.c` needs neither torch nor Python: it takes addresses. One pass over memory replaces a
dozen that torch dispatches one by one, so a learned quantizer takes a third of the time. The work
is split over as many threads as torch may use.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

_LARGEST_BOUND = 2**21
"""Codes up to here are rounded exactly."""

_SHARE = 1 << 17
"""The number of elements that justifies a thread."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled library, or None."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_native{suffix}")
        if path.exists():
            found = ctypes.CDLL(str(path))
            pointer, size, bound = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_float
            found.onnxq_forward.argtypes = [*[pointer] * 3, size, size, bound, bound]
            found.onnxq_lsq.argtypes = [*[pointer] * 5, size, size, bound, bound]
            found.onnxq_forward.restype = found.onnxq_lsq.restype = None
            return found
    return None


def _loaded() -> ctypes.CDLL:
    found = library()
    assert found is not None, "call `takes` first"
    return found


def takes(s: Tensor, low: float, high: float, x: Tensor, *others: Tensor) -> bool:
    """Whether the kernels support it: one scale, or one for each slice along the first axis."""
    return (
        library() is not None
        and max(-low, high) <= _LARGEST_BOUND
        and (s.numel() == 1 or s.shape[0] == s.numel() == x.shape[0])
        and x.numel() > 0
        and all(
            t.dtype is torch.float32 and t.is_cpu and t.is_contiguous() for t in (s, x, *others)
        )
    )


def forward(x: Tensor, s: Tensor, low: float, high: float) -> Tensor:
    """y of `torch_bridge.arithmetic.kernels`, with low and high counted from the zero point."""
    y = torch.empty_like(x)
    run = _loaded().onnxq_forward
    source, made, scales = x.data_ptr(), y.data_ptr(), s.data_ptr()

    def part(row: int, rows: int, n: int, at: int, _: int) -> None:
        run(source + at, made + at, scales + 4 * row, rows, n, low, high)

    _share_out(s.numel(), x.numel(), part)
    return y


def lsq(dy: Tensor, x: Tensor, s: Tensor, low: float, high: float, dx: Tensor) -> Tensor:
    """Fill dx, which may be dy, and return Σ of the terms of ds for each scale."""
    parts = _parts(s.numel(), x.numel())
    sums = torch.empty(max(s.numel(), len(parts)), dtype=torch.float64)
    run = _loaded().onnxq_lsq
    addresses = [t.data_ptr() for t in (dy, x, dx)]
    scales, totals = s.data_ptr(), sums.data_ptr()

    def part(row: int, rows: int, n: int, at: int, total: int) -> None:
        given = (address + at for address in addresses)
        run(*given, scales + 4 * row, totals + 8 * total, rows, n, low, high)

    _share_out(s.numel(), x.numel(), part)
    return (sums if s.numel() > 1 else sums.sum()).to(x.dtype)


Part = tuple[int, int, int, int, int]
"""First row, number of rows, elements per row, offset in bytes, index of the first sum."""


def _parts(rows: int, size: int) -> list[Part]:
    """Rows in equal parts, one for each thread; a single row is split itself."""
    count = max(min(torch.get_num_threads(), size // _SHARE), 1)
    if rows == 1:
        cuts = [size * i // count for i in range(count + 1)]
        return [(0, 1, b - a, 4 * a, i) for i, (a, b) in enumerate(itertools.pairwise(cuts))]
    n, count = size // rows, min(count, rows)
    cuts = [rows * i // count for i in range(count + 1)]
    return [(a, b - a, n, 4 * a * n, a) for a, b in itertools.pairwise(cuts)]


def _share_out(rows: int, size: int, job: Callable[[int, int, int, int, int], None]) -> None:
    parts = _parts(rows, size)
    if len(parts) == 1:
        job(*parts[0])
        return
    rest = [_workers(os.getpid()).submit(job, *part) for part in parts[1:]]
    job(*parts[0])
    for future in rest:
        future.result()


@functools.cache
def _workers(process: int) -> ThreadPoolExecutor:
    """Threads of this process: a fork does not inherit those of its parent."""
    return ThreadPoolExecutor(thread_name_prefix="torch_bridge")
