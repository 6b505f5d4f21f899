"""The float weight of stored codes, computed only when it is read.

In the canonical form stored codes q are a constant (q - z) * s before a quantizer. For a large
weight that constant is never computed as a whole: it is four times as large as the codes, and a
writer needs the codes again. They need no arithmetic. With x = fl(k * s), |k| < 2^16 and x finite,
x / s is k * (1 + d), |d| < 2^-22, so it rounds to k: on a grid of the same scales x has the codes

    q' = clamp(k + z', lo', hi')        k = q - z

float16 has too few digits for that, and float8 codes are no integers: these are computed.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.arrays import pieces
from onnxq.errors import QParamsError
from onnxq.graph.constants import array, is_constant
from onnxq.quant.qparams import Array, QParams
from onnxq.storage.external_data import ExternalData
from onnxq.storage.tensors import Codes, ComputedValues, StoredValues, parts_of

_LARGEST = float(np.finfo(np.float32).max)


def stored_codes(tensor: gs.Tensor) -> Codes | None:
    """The value of constant codes, as `array` returns it; large ones stay in their file."""
    if isinstance(tensor, gs.Constant) and is_constant(tensor):
        values = tensor._values
        stored = isinstance(values, StoredValues) and pieces.is_large(values.shape)
        if stored and values.dtype.itemsize <= 2:
            return cast(StoredValues, values)
    return array(tensor)


class DequantizedValues(ComputedValues):
    """Values that stored codes stand for, in `dtype`; never changed."""

    def __init__(self, codes: Codes, params: QParams, dtype: Any) -> None:
        self.codes = codes
        self.params = params
        self.dtype = np.dtype(dtype)
        self.shape = tuple(codes.shape)
        self.ndim = len(self.shape)
        self.size = math.prod(self.shape)
        self._loaded: Callable[[], Array | None] = lambda: None

    @property
    def source(self) -> ExternalData | None:
        """The file that contains the codes."""
        return self.codes.external if isinstance(self.codes, StoredValues) else None

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return int(self.size * self.dtype.itemsize)

    def parts(self) -> Iterator[tuple[pieces.Index, Array]]:
        """The values block by block, none of which is kept."""
        if self.settled is not None:
            yield from self.settled.parts()
            return
        for at, codes in parts_of(self.codes):
            values = self.params.dequantize_block(codes, self.shape, at)
            yield at, values.astype(self.dtype, copy=False)

    def load(self) -> Array:
        """All values, read-only; a large array is in a file that exists as long as it is used."""
        known = self._loaded()
        if known is not None:
            return known
        whole = pieces.assembled(self.shape, self.dtype, (part for _, part in self.parts()))
        whole.setflags(write=False)
        self._loaded = weakref.ref(whole)
        return whole

    def codes_on(self, params: QParams, dtype: np.dtype[Any]) -> Codes:
        """The codes that a quantizer makes of these values, in `dtype`."""
        if not self._has_steps_of(params) or self.settled is not None:
            return params.quantize(self.load(), dtype)
        if self.lies_on(params) and self.codes.dtype == dtype:
            return self.codes
        parts = (self._moved(codes, params, at) for at, codes in parts_of(self.codes))
        return pieces.assembled(self.shape, dtype, parts)

    def lies_on(self, params: QParams) -> bool:
        """Whether a quantizer with these parameters certainly changes no value."""
        own = self.params
        if not self._has_steps_of(params) or not np.array_equal(own.zero_point, params.zero_point):
            return False
        assert own.lo is not None and own.hi is not None
        assert params.lo is not None and params.hi is not None
        return params.lo <= own.lo and own.hi <= params.hi

    def _has_steps_of(self, params: QParams) -> bool:
        own = self.params
        return (
            self.dtype == np.float32
            and not own.qtype.floating
            and not params.qtype.floating
            and max(own.qtype.bits, params.qtype.bits) <= 16
            and float(own.scale.max()) * 2**16 < _LARGEST
            and (own.axis, own.block) == (params.axis, params.block)
            and np.array_equal(own.scale, params.scale)
        )

    def _moved(self, codes: Array, params: QParams, at: pieces.Index) -> Array:
        _, before = self.params.block_of(self.shape, at)
        _, after = params.block_of(self.shape, at)
        return np.clip(codes.astype(np.int64) - before + after, params.lo, params.hi)


Values = Array | DequantizedValues


def unread(tensor: gs.Tensor) -> Values | None:
    """The value of a constant tensor, computed only if necessary; None if it is not constant."""
    values = tensor._values if isinstance(tensor, gs.Constant) else None
    if isinstance(values, DequantizedValues) and is_constant(tensor):
        return values
    return array(tensor)


def loaded(values: Values) -> Array:
    """The values in an array."""
    return values.load() if isinstance(values, DequantizedValues) else values


def value_parts(values: Values) -> Iterator[tuple[pieces.Index, Array]]:
    """The blocks of `values`, each with its place."""
    return values.parts() if isinstance(values, DequantizedValues) else parts_of(values)


def codes_of(values: Values, params: QParams, dtype: Any) -> Codes:
    """The codes that a quantizer makes of `values`, in `dtype`."""
    if isinstance(values, DequantizedValues):
        return values.codes_on(params, np.dtype(dtype))
    return params.quantize(values, dtype)


def dequantized(codes: Codes, params: QParams, dtype: Any) -> Array | DequantizedValues:
    """The values that `codes` stand for; those of many codes are not computed yet."""
    _check_finite(codes, params)
    if pieces.is_large(codes.shape):
        params.check_shape(codes.shape)
        return DequantizedValues(codes, params, dtype)
    assert not isinstance(codes, StoredValues)
    return params.dequantize(codes).astype(dtype)


def _check_finite(codes: Codes, params: QParams) -> None:
    """Reject codes of values beyond float32: quantizers give an infinity any code."""
    assert params.lo is not None and params.hi is not None
    zero = params.zero_point
    reach = max(params.hi - int(zero.min()), int(zero.max()) - params.lo)
    if reach * float(params.scale.max()) <= _LARGEST:
        return
    shape = tuple(codes.shape)
    for at, part in parts_of(codes):
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(params.dequantize_block(part, shape, at))
        if not finite.all():
            raise QParamsError(
                f"tensor '{params.tensor}': its codes represent values beyond float32 "
                f"(a scale of {params.scale.max():g})",
                fix="recalibrate this tensor, or leave it unquantized",
            )


__all__ = [
    *("DequantizedValues", "Values", "codes_of", "dequantized", "loaded", "stored_codes"),
    *("unread", "value_parts"),
]
