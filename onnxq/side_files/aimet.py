"""Shared parts of the three versions of AIMET's encodings: codes of any width, and offsets.

Versions 0.6.1 and 1.0.0 count codes from 0, whatever the type: with b bits and a scale s

    x = s * (q + offset),   q in 0 .. 2^b - 1,   offset = -z            (unsigned type)
                                                 offset = -(z + 2^(b-1)) (signed type)

so offset <= 0 and s * offset is the smallest value. "Symmetric" in these files means the signed
type, with the same zero point in all channels. Only full ranges of b bits exist: -127..127 cannot
be distinguished from a zero point of -1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
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

Groups = Iterable[tuple[str, Role, Any]]
"""Key, role and content of each group."""


def offset_of(row: QParams) -> Array:
    """The offsets of `row`, counted from code 0 of an unsigned type."""
    assert row.lo is not None
    return row.lo - row.zero_point


# -- writing -----------------------------------------------------------------------------------


def writable(
    table: QParamTable, version: str, more: Callable[[QParams], str | None]
) -> list[QParams]:
    """The rows of `table`, or one error for all that an encoding file cannot contain."""
    fix = "change these quantizers, or use the format 'onnxq', which can express them all"
    rows = [row.with_(readers=None) if row.role is Role.BIAS else row for row in table]
    return side_rows.writable(
        rows, f"encodings {version}", lambda row: side_rows.partial_codes(row) or more(row), fix
    )


def offset_refusal(row: QParams) -> str | None:
    """Why the offsets of `row` suit neither a symmetric grid nor an asymmetric one."""
    if row.qtype.signed and np.unique(row.zero_point).size > 1:
        return f"{row.qtype} with zero points that differ between channels"
    return None


def in_group(row: QParams, key: str) -> bool:
    """Whether `row` belongs to a group: parameters are weights and biases."""
    return (row.role is Role.ACTIVATION) == (GROUPS[key] is Role.ACTIVATION)


# -- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HasVersion:
    """Recognises documents of some versions."""

    versions: tuple[str, ...]

    def __call__(self, text: str) -> bool:
        """Whether `text` is such a document."""
        return strict_json.peek(text).get("version") in self.versions


def document(text: str, versions: tuple[str, ...], keys: Collection[str]) -> dict[str, Any]:
    """The document of an encoding file that has one of the versions and some of the keys."""
    fix = f"give encodings of version {versions[0]}, as AIMET writes them"
    what = f"an encoding file of version {versions[0]}"
    found = strict_json.parse(text, what, fix)
    if not isinstance(found, dict) or found.get("version") not in versions:
        raise LoadError(f"not {what}: key 'version' does not say so", fix=fix)
    for key in found:
        if "encoding" in key and key not in keys:
            raise LoadError(
                f"unknown key '{key}' at the top of the encodings",
                fix=f"the known keys are {', '.join(keys)}",
            )
    if not any(key in found for key in keys):
        raise LoadError(f"not {what}: it has no {' or '.join(keys)}", fix=fix)
    return found


def groups(text: str, version: str) -> Groups:
    """The groups of a file of version 0.6.1 or 1.0.0."""
    found = document(text, (version,), GROUPS)
    return [(key, role, found[key]) for key, role in GROUPS.items() if key in found]


def listed_entries(groups: Groups, fix: str) -> Iterator[tuple[str, Role, list[Entry]]]:
    """Every tensor of the groups with its role and its list of entries, each tensor once."""
    seen: set[str] = set()
    for key, role, group in groups:
        for name, entries in Entry.of(group, f"'{key}'", fix).value.items():
            where = f"'{key}', tensor '{name}'"
            if not isinstance(entries, list) or not entries:
                raise LoadError(f"{where}: its encoding is not a list of entries", fix=fix)
            _check_new(name, where, seen)
            found = [Entry.of(e, f"{where}, entry {i}", fix) for i, e in enumerate(entries)]
            yield name, role, found


def named_entries(groups: Groups, fix: str) -> Iterator[tuple[Role, Entry]]:
    """Every entry of groups that are lists, with its role; an entry names its tensor."""
    seen: set[str] = set()
    for key, role, group in groups:
        if not isinstance(group, list):
            raise LoadError(f"'{key}' is not a list of entries", fix=fix)
        for number, value in enumerate(group):
            entry = Entry.of(value, f"'{key}', entry {number}", fix)
            if "name" not in value:
                raise entry.error("key 'name' is missing")
            name = entry.text("name")
            where = f"'{key}', tensor '{name}'"
            _check_new(name, where, seen)
            yield role, Entry(value, where, fix)


def _check_new(name: str, where: str, seen: set[str]) -> None:
    """Reject a tensor that the file contains twice."""
    if name in seen:
        raise LoadError(
            f"{where}: tensor '{name}' already has an encoding", fix="delete one of the two"
        )
    seen.add(name)


def check_offsets(entry: Entry, offsets: Collection[int], bits: int) -> None:
    """Reject offsets without a zero point, in the numbers of the file."""
    least = 1 - (1 << bits)
    for offset in offsets:
        if not least <= offset <= 0:
            raise entry.error(
                f"offset {offset} is outside {least}..0: zero must be one of the {1 - least} codes"
            )


def check_symmetric(entry: Entry, key: str, offsets: Collection[int]) -> None:
    """Reject a grid that is declared symmetric and has several zero points."""
    if len(set(offsets)) > 1:
        least, most = min(offsets), max(offsets)
        raise entry.error(f"'{key}' says symmetric, but its offsets range from {least} to {most}")
