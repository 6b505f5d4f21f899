"""Rows on their way into a side file and out of it: what all formats refuse, check and shift.

A side file names tensors and not their readers, so it holds at most one row per tensor, and that
row is for every reader. Formats with unsigned codes alone hold signed rows as well: the codes
q - lo and the zero point z - lo are the same grid counted from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError, QParamsError, SaveError, listed
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import QTYPES, QType, qtype

END_TOLERANCE = 1e-2
"""Of a step: how far the ends of a range may be from scale * code, since tools round them."""


def bits_of(row: QParams) -> int | None:
    """How many bits have exactly the codes of `row`; None for others, such as -127..127."""
    assert row.lo is not None and row.hi is not None
    bits = (row.hi - row.lo).bit_length()
    return bits if (row.lo, row.hi) == code_range(bits, row.qtype.signed) else None


def code_range(bits: int, signed: bool) -> tuple[int, int]:
    """Lowest and highest code of `bits` bits."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def checked_code_range(entry: Entry, bits: int, signed: bool) -> tuple[int, int]:
    """The same of a number of bits that a file tells."""
    if container(bits, signed) is None:
        raise entry.error(f"{bits} bits are not a width onnxq knows")
    return code_range(bits, signed)


def container(bits: int, signed: bool) -> QType | None:
    """The narrowest type that holds codes of `bits` bits; None where there is none."""
    integers = (t for t in QTYPES.values() if not t.floating and t.signed == signed)
    fit = [t for t in integers if bits <= t.bits and (t.bits < 32 or bits == 32)]
    return min(fit, key=lambda t: t.bits) if bits >= 2 and fit else None


def partial_codes(row: QParams) -> str | None:
    """Why `row` does not use all codes of a number of bits; None where it does."""
    if row.qtype.floating:
        return f"codes of type {row.qtype}"
    if bits_of(row) is None:
        return f"codes {row.lo}..{row.hi} are not all codes of a number of bits"
    return None


def per_channel(row: QParams) -> str | None:
    """Why `row` does not fit a format with one scale per tensor."""
    return None if row.axis is None else "one scale per channel or block"


def axis_refusal(row: QParams, parts: TensorParts) -> str | None:
    """Why the graph does not tell the axis of the channels of `row`."""
    if row.block:
        return "one scale per block"
    if row.axis is None:
        return None
    shape = parts.shape(row.tensor)
    if row.role is Role.ACTIVATION or shape is None:
        return "one scale per channel of an activation"
    try:
        axis = parts.channel_axis(row.tensor)
    except LoadError as error:
        return error.what
    if row.axis % len(shape) != axis:
        return f"its scales run along axis {row.axis}, its layer's channels along axis {axis}"
    return None


def writable(
    rows: Iterable[QParams], what: str, refusal: Callable[[QParams], str | None], fix: str
) -> list[QParams]:
    """The rows, or one error for all that `what` cannot hold: of several readers, or refused."""
    found = list(rows)
    count = Counter(row.tensor for row in found)
    refused: dict[str, str] = {}
    for row in found:
        if count[row.tensor] > 1:
            why: str | None = (
                f"it has {count[row.tensor]} quantizers; 'unify-scales' merges those that agree"
            )
        elif row.readers is not None:
            why = f"only some of its readers see it quantized, and {what} are for all"
        else:
            why = refusal(row)
        if why is not None:
            refused[row.tensor] = why
    if refused:
        raise not_writable(refused, what, fix)
    return found


def not_writable(refused: dict[str, str], what: str, fix: str) -> SaveError:
    """The error for tensors that a format cannot hold, each with the reason."""
    lines = listed(f"'{name}': {why}" for name, why in refused.items())
    return SaveError(f"{len(refused)} of the tensors cannot be written as {what}:{lines}", fix=fix)


def unsigned(row: QParams) -> QParams:
    """The same grid with codes from 0 up."""
    if not row.qtype.signed or row.qtype.floating:
        return row
    assert row.lo is not None and row.hi is not None
    return row.with_(
        qtype=qtype(f"u{row.qtype.name}"),
        zero_point=row.zero_point - row.lo,
        lo=0,
        hi=row.hi - row.lo,
    )


def check_end(
    entry: Entry, key: str, value: float, scale: float, code: int, zero: str = "zero point"
) -> None:
    """Refuse an end of a range that tells another grid than scale and what the file calls zero."""
    if abs(value - scale * code) > END_TOLERANCE * abs(scale):
        raise entry.error(f"'{key}' is {value:.9g}, but scale and {zero} give {scale * code:.9g}")


def with_role(row: QParams, parts: TensorParts) -> QParams:
    """`row` with the role its tensor has in the graph, for formats without groups."""
    return row.with_(role=parts.role(row.tensor, row.qtype))


def row_of_entries(
    first: Entry,
    name: str,
    bits: int,
    signed: bool,
    scales: list[float],
    zero_points: list[int],
    role: Role,
    parts: TensorParts,
) -> QParams:
    """The row of a tensor with a list of entries: one for all, or one per channel."""
    if len(scales) == 1:
        return make_row(first, name, bits, signed, scales[0], zero_points[0], role)
    axis = parts.channel_axis(name)
    return make_row(first, name, bits, signed, scales, zero_points, role, axis)


def make_row(
    entry: Entry,
    name: str,
    bits: int,
    signed: bool,
    scale: Any,
    zero_point: Any,
    role: Role,
    axis: int | None = None,
    block: int = 0,
) -> QParams:
    """One row; the error names the place of an invalid value in the file."""
    kind = container(bits, signed)
    if kind is None:
        raise entry.error(f"{'int' if signed else 'uint'}{bits} is not a type onnxq knows")
    lo, hi = code_range(bits, signed)
    if kind.bits == 32:
        role = Role.BIAS
    try:
        return QParams(
            name,
            kind,
            np.asarray(scale, np.float64),
            np.asarray(zero_point, np.int64),
            axis=axis,
            block=block,
            lo=lo,
            hi=hi,
            role=role,
        )
    except QParamsError as error:
        raise LoadError(f"{entry.where}: {error.what}", fix=error.fix) from error
