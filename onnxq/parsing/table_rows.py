"""A row of a quantization table apart from its grid: the tensor, its role and its uses."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, Protocol

from onnxq.errors import LoadError, QParamsError
from onnxq.parsing.strict_json import Entry


class Role(enum.StrEnum):
    """The role of a quantized tensor for its consumer."""

    ACTIVATION = "activation"
    WEIGHT = "weight"
    BIAS = "bias"


class Reader(NamedTuple):
    """One use of a tensor: input number `input` of the node that produces tensor `node`.

    Tensor names are unique in a graph, node names are not. The graph output is `Reader("", 0)`.
    """

    node: str
    input: int


GRAPH_OUTPUT = Reader("", 0)


class GridRow(Protocol):
    """A row of a table, as far as its grid can be compared with others."""

    def grid_key(self) -> Hashable:
        """Equal for the same grid."""


# -- as JSON -------------------------------------------------------------------------------


@contextlib.contextmanager
def rejecting() -> Iterator[None]:
    """Turn errors of reading into errors about unusable parameters."""
    try:
        yield
    except LoadError as error:
        raise QParamsError(error.what, fix=error.fix) from error


def row_entry(row: Any) -> Entry:
    """A row of a table as a JSON entry."""
    fix = "write the row as 'collect-qparams' does: one JSON object per tensor"
    entry = Entry.of(row, "a row of a quantization table", fix)
    return Entry(entry.value, f"row for tensor '{entry.value.get('tensor', '?')}'", fix)


def role_of(entry: Entry) -> Role:
    """The role of a row; the default is an activation."""
    if "role" not in entry.value:
        return Role.ACTIVATION
    return Role(entry.choice("role", *(str(role) for role in Role)))


def readers_of(entry: Entry) -> tuple[Reader, ...] | None:
    """The uses that a row is for; None: all."""
    if "readers" not in entry.value:
        return None
    found = entry.value["readers"]
    for reader in found if isinstance(found, list) else [None]:
        pair = reader if isinstance(reader, list) and len(reader) == 2 else [None, None]
        if not isinstance(pair[0], str) or type(pair[1]) is not int or pair[1] < 0:
            raise entry.error("'readers' is not a list of pairs of a tensor and an input number")
    return tuple(Reader(*reader) for reader in found)
