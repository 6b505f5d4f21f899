"""The types that codes are stored in: integers, and 8-bit floats.

The codes of a float8 type are its values. They lie closer together towards zero, so there is no
zero point (it is 0) and no narrower range: lo..hi is -max..max, and what lies beyond saturates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from onnxq.errors import QParamsError, near_matches


@dataclass(frozen=True)
class QType:
    """A type that codes are stored in."""

    name: str
    bits: int
    signed: bool
    onnx: int
    dtype: np.dtype[Any]
    opset: int
    largest: int | None = None
    """Largest value of a float8 type; None for integers."""

    @cached_property
    def floating(self) -> bool:
        """Whether codes are floats."""
        return self.largest is not None

    @cached_property
    def lo(self) -> int:
        """Lowest code."""
        if self.largest is not None:
            return -self.largest
        return -(1 << (self.bits - 1)) if self.signed else 0

    @cached_property
    def hi(self) -> int:
        """Highest code."""
        if self.largest is not None:
            return self.largest
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name


def _qtype(
    name: str, bits: int, signed: bool, dtype: Any, opset: int, largest: int | None = None
) -> QType:
    onnx_type = getattr(TensorProto, name.upper())
    return QType(name, bits, signed, onnx_type, np.dtype(dtype), opset, largest)


QTYPES: Mapping[str, QType] = {
    t.name: t
    for t in (
        _qtype("int8", 8, True, np.int8, 10),
        _qtype("uint8", 8, False, np.uint8, 10),
        _qtype("int16", 16, True, np.int16, 21),
        _qtype("uint16", 16, False, np.uint16, 21),
        _qtype("int4", 4, True, ml_dtypes.int4, 21),
        _qtype("uint4", 4, False, ml_dtypes.uint4, 21),
        _qtype("int2", 2, True, ml_dtypes.int2, 25),
        _qtype("uint2", 2, False, ml_dtypes.uint2, 25),
        _qtype("int32", 32, True, np.int32, 10),
        _qtype("float8e4m3fn", 8, True, ml_dtypes.float8_e4m3fn, 19, 448),
        _qtype("float8e4m3fnuz", 8, True, ml_dtypes.float8_e4m3fnuz, 19, 240),
        _qtype("float8e5m2", 8, True, ml_dtypes.float8_e5m2, 19, 57344),
        _qtype("float8e5m2fnuz", 8, True, ml_dtypes.float8_e5m2fnuz, 19, 57344),
    )
}
"""The types by name, with the first opset whose Q/DQ supports them (int32: DQ only)."""

_BY_DTYPE = {t.dtype: t for t in QTYPES.values()}


def qtype(name: str | np.dtype[Any]) -> QType:
    """The type of that name or numpy dtype; an error lists near matches."""
    found = _BY_DTYPE.get(name) if isinstance(name, np.dtype) else QTYPES.get(name)
    if found is None:
        raise QParamsError(
            f"'{name}' is not a quantization type", fix=near_matches(str(name), QTYPES)
        )
    return found


def holding(lo: int, hi: int) -> QType | None:
    """The smallest type up to 16 bits that contains lo..hi: unsigned if lo >= 0, else signed."""
    sign = "int" if lo < 0 else "uint"
    kinds = (QTYPES[f"{sign}{bits}"] for bits in (2, 4, 8, 16))
    return next((kind for kind in kinds if kind.lo <= lo and hi <= kind.hi), None)
