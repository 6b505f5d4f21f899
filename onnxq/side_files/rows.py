"""Rows on their way into a side file and out of it: common refusals, checks and shifts.

Most side files name tensors and not their consumers, so they contain at most one row per tensor,
for all its consumers. Formats with unsigned codes only can contain signed rows as well: the codes
q - lo and the zero point z - lo are the same grid counted from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.edit import read_by
from onnxq.errors import LoadError, QParamsError, SaveError, listed
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparams import GRAPH_OUTPUT, QParams, Reader, Role
from onnxq.quant.qtypes import QTYPES, QType, qtype
from onnxq.quant.scheme import QSpec

END_TOLERANCE = 1e-2
"""How far the ends of a range may be from scale * code, in steps, since tools round them."""

# -- codes -------------------------------------------------------------------------------------


def bits_of(row: QParams) -> int | None:
    """The number of bits with exactly the codes of `row`; None for others, such as -127..127."""
    assert row.lo is not None and row.hi is not None
    bits = (row.hi - row.lo).bit_length()
    return bits if (row.lo, row.hi) == code_range(bits, row.qtype.signed) else None


def code_range(bits: int, signed: bool) -> tuple[int, int]:
    """Lowest and highest code of `bits` bits."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def container(entry: Entry, bits: int, signed: bool) -> QType:
    """The narrowest type for codes of the number of bits that a file specifies."""
    integers = (t for t in QTYPES.values() if not t.floating and t.signed == signed)
    wide = [t for t in integers if bits <= t.bits and (t.bits < 32 or bits == 32)]
    if bits < 2 or not wide:
        kind = "signed" if signed else "unsigned"
        raise entry.error(f"onnxq has no type for {kind} codes of {bits} bits")
    return min(wide, key=lambda t: t.bits)


def checked_code_range(entry: Entry, bits: int, signed: bool) -> tuple[int, int]:
    """`code_range` for a number of bits that a file specifies."""
    container(entry, bits, signed)
    return code_range(bits, signed)


def unsigned(row: QParams) -> QParams:
    """The same grid with codes that start at 0."""
    if not row.qtype.signed or row.qtype.floating:
        return row
    assert row.lo is not None and row.hi is not None
    return row.with_(
        qtype=qtype(f"u{row.qtype.name}"),
        zero_point=row.zero_point - row.lo,
        lo=0,
        hi=row.hi - row.lo,
    )


# -- writing -----------------------------------------------------------------------------------


def partial_codes(row: QParams) -> str | None:
    """Why `row` does not use all codes of a number of bits; None if it does."""
    if row.qtype.floating:
        return f"codes of type {row.qtype}"
    if bits_of(row) is None:
        return f"codes {row.lo}..{row.hi} are not all codes of a number of bits"
    return None


def per_channel(row: QParams) -> str | None:
    """Why a format with one scale per tensor cannot contain `row`."""
    return None if row.axis is None else "one scale per channel or block"


def off_grid(row: QParams, spec: QSpec) -> str | None:
    """Why the grid of `row` is not one that `spec` allows."""
    return "; ".join(spec.violations(row)) or None


def axis_refusal(row: QParams, parts: TensorParts) -> str | None:
    """Why the graph does not specify the axis of the channels of `row`."""
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
    """The rows, or one error for all that `what` cannot contain.

    Those are the rows that `refusal` gives a reason for, several rows of one tensor, and rows for
    some consumers only.
    """
    found = list(rows)
    count = Counter(row.tensor for row in found)
    refused: dict[str, str | None] = {}
    for row in found:
        if count[row.tensor] > 1:
            refused[row.tensor] = (
                f"it has {count[row.tensor]} quantizers; 'unify-scales' merges those that agree"
            )
        elif row.readers is not None:
            refused[row.tensor] = (
                f"only some of its consumers see it quantized, and {what} are for all"
            )
        else:
            refused[row.tensor] = refusal(row)
    check_writable({name: why for name, why in refused.items() if why}, what, fix)
    return found


def check_writable(refused: dict[str, str], what: str, fix: str) -> None:
    """Raise one error for all tensors that a format cannot contain, each with its reason."""
    if refused:
        lines = listed(f"'{name}': {why}" for name, why in refused.items())
        raise SaveError(
            f"{len(refused)} of the tensors cannot be written as {what}:{lines}", fix=fix
        )


def readers_of(row: QParams, parts: TensorParts) -> set[Reader]:
    """The uses of a tensor that see it quantized by `row`."""
    if row.readers is not None:
        return set(row.readers)
    tensor = parts.find(row.tensor)
    if tensor is None:
        return set()
    found = {read_by(node, index) for node, index in parts.uses(tensor)}
    return found | ({GRAPH_OUTPUT} if parts.model.is_output(tensor) else set())


# -- reading -----------------------------------------------------------------------------------


def check_end(
    entry: Entry, key: str, value: float, scale: float, code: int, zero: str = "zero point"
) -> None:
    """Reject an end of a range that contradicts the scale and what the file calls zero."""
    if abs(value - scale * code) > END_TOLERANCE * abs(scale):
        raise entry.error(f"'{key}' is {value:.9g}, but scale and {zero} give {scale * code:.9g}")


def with_role(row: QParams, parts: TensorParts) -> QParams:
    """`row` with the role its tensor has in the graph, for formats without groups."""
    return row.with_(role=parts.role(row.tensor, row.qtype))


def row_of_entries(
    entry: Entry,
    name: str,
    bits: int,
    signed: bool,
    scales: list[float],
    zero_points: list[int],
    role: Role,
    parts: TensorParts,
) -> QParams:
    """The row of a tensor with lists of one number, or one number per channel."""
    axis = None if len(scales) == 1 else parts.channel_axis(name)
    return make_row(entry, name, bits, signed, scales, zero_points, role, axis)


def make_row(
    entry: Entry,
    name: str,
    bits: int,
    signed: bool,
    scale: Any,
    zero_point: Any,
    role: Role = Role.ACTIVATION,
    axis: int | None = None,
    block: int = 0,
) -> QParams:
    """One row; the error names the place of an invalid value in the file."""
    kind = container(entry, bits, signed)
    lo, hi = code_range(bits, signed)
    if kind.bits == 32:
        role = Role.BIAS
    scale, zero_point = np.asarray(scale, np.float64), np.asarray(zero_point, np.int64)
    try:
        return QParams(name, kind, scale, zero_point, axis, block, lo, hi, role)
    except QParamsError as error:
        raise LoadError(f"{entry.where}: {error.what}", fix=error.fix) from error
