"""The integer types that codes are stored in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from onnxq.errors import QParamsError, near_matches


@dataclass(frozen=True)
class QType:
    """An integer type that codes are stored in."""

    name: str
    bits: int
    signed: bool
    onnx: int
    dtype: np.dtype[Any]
    opset: int

    @property
    def lo(self) -> int:
        """Lowest code."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def hi(self) -> int:
        """Highest code."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name


def _qtype(name: str, bits: int, signed: bool, dtype: Any, opset: int) -> QType:
    return QType(name, bits, signed, getattr(TensorProto, name.upper()), np.dtype(dtype), opset)


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
    )
}
"""The integer types by name, with the first opset whose Q/DQ can hold them (int32: DQ only)."""

_BY_DTYPE = {t.dtype: t for t in QTYPES.values()}


def qtype(name: str | np.dtype[Any]) -> QType:
    """The type of that name or numpy dtype; an error lists near matches."""
    if isinstance(name, np.dtype):
        found = _BY_DTYPE.get(name)
        if found is None:
            raise QParamsError(
                f"'{name}' is not an integer type for quantization", fix=near_matches("", QTYPES)
            )
        return found
    if name not in QTYPES:
        raise QParamsError(
            f"'{name}' is not a quantization type", fix=near_matches(str(name), QTYPES)
        )
    return QTYPES[name]
