"""int8 codes counted from 0: q + 128 and z + 128 are the same values in uint8."""

from __future__ import annotations

from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype


def unsigned(params: QParams) -> QParams | None:
    """The same grid in uint8; None unless the codes are int8 or a narrower signed type."""
    if params.qtype.floating or not params.qtype.signed or params.qtype.bits > 8:
        return None
    assert params.lo is not None and params.hi is not None
    return params.with_(
        qtype=qtype("uint8"),
        lo=params.lo + 128,
        hi=params.hi + 128,
        zero_point=params.zero_point + 128,
    )
