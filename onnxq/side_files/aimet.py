"""What the three versions of AIMET's encodings share: codes of any width, and offsets.

Versions 0.6.1 and 1.0.0 count codes from 0, whatever the type: with b bits and a scale s

    x = s * (q + offset),   q in 0 .. 2^b - 1,   offset = -z            (unsigned type)
                                                 offset = -(z + 2^(b-1)) (signed type)

so offset <= 0 and s * offset is the smallest value. "Symmetric" in these files means the signed
type, with one zero point throughout. Only whole ranges of b bits exist: -127..127 cannot be told
from a zero point of -1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from onnxq.errors import LoadError
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.side_files import rows as side_rows

GROUPS = {"activation_encodings": Role.ACTIVATION, "param_encodings": Role.WEIGHT}
"""The two groups of 0.6.1 and 1.0.0, and the role of their rows."""
PRODUCER = {"package": "onnxq"}


def offset_of(row: QParams) -> Array:
    """The offsets of `row`, counted from code 0 of an unsigned type."""
    assert row.lo is not None
    return row.lo - row.zero_point


# -- writing -----------------------------------------------------------------------------------


def writable(
    table: QParamTable, version: str, more: Callable[[QParams], str | None]
) -> list[QParams]:
    """The rows of `table`, or one error for all that an encoding file cannot hold."""
    fix = "change these quantizers, or use the format 'onnxq', which can express them all"
    rows = [row.with_(readers=None) if row.role is Role.BIAS else row for row in table]
    return side_rows.writable(
        rows, f"encodings {version}", lambda row: side_rows.partial_codes(row) or more(row), fix
    )


def offset_refusal(row: QParams) -> str | None:
    """Why the offsets of `row` go neither with a symmetric grid nor with an asymmetric one."""
    if row.qtype.signed and np.unique(row.zero_point).size > 1:
        return f"{row.qtype} with zero points that differ between channels"
    return None


def check_symmetric(entry: Entry, key: str, offsets: Collection[int]) -> None:
    """Refuse a grid that calls itself symmetric and has several zero points."""
    if len(set(offsets)) > 1:
        least, most = min(offsets), max(offsets)
        raise entry.error(f"'{key}' says symmetric, but its offsets range from {least} to {most}")


# -- reading -----------------------------------------------------------------------------------


def groups(text: str, version: str) -> Iterator[tuple[str, Role, Any]]:
    """The groups of a file of version 0.6.1 or 1.0.0: key, role, content."""
    fix = f"give encodings of version {version}, as AIMET writes them"
    what = f"an encoding file of version {version}"
    document = strict_json.parse(text, what, fix)
    if not isinstance(document, Mapping) or document.get("version") != version:
        raise LoadError(f"not {what}: key 'version' does not say so", fix=fix)
    for key in document:
        if "encoding" in key and key not in GROUPS:
            raise LoadError(
                f"unknown key '{key}' at the top of the encodings",
                fix=f"the groups are {' and '.join(GROUPS)}",
            )
    if not any(key in document for key in GROUPS):
        raise LoadError(f"not {what}: it has none of {', '.join(GROUPS)}", fix=fix)
    for key, role in GROUPS.items():
        if key in document:
            yield key, role, document[key]


def listed_entries(
    groups: Iterable[tuple[str, Role, Any]], fix: str
) -> Iterator[tuple[str, Role, list[Entry]]]:
    """Every tensor of the groups with its role and its list of entries, each tensor once."""
    seen: set[str] = set()
    for key, role, group in groups:
        for name, entries in Entry.of(group, f"'{key}'", fix).value.items():
            where = f"'{key}', tensor '{name}'"
            if not isinstance(entries, list) or not entries:
                raise LoadError(f"{where}: its encoding is not a list of entries", fix=fix)
            if name in seen:
                raise twice(where, name)
            seen.add(name)
            yield (
                name,
                role,
                [Entry.of(e, f"{where}, entry {number}", fix) for number, e in enumerate(entries)],
            )


def twice(where: str, name: str) -> LoadError:
    """The error for a tensor that a file contains twice."""
    return LoadError(
        f"{where}: tensor '{name}' already has an encoding", fix="delete one of the two"
    )


def in_group(row: QParams, key: str) -> bool:
    """Whether `row` belongs to a group: parameters are weights and biases."""
    return (row.role is Role.ACTIVATION) == (GROUPS[key] is Role.ACTIVATION)
