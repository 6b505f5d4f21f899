"""The quantization of a whole model as a table, apart from its graph; exact as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnxq.errors import QParamsError, near_matches
from onnxq.parsing import strict_json
from onnxq.parsing.argument_types import check, takes
from onnxq.parsing.strict_json import Entry
from onnxq.parsing.table_rows import rejecting
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparams import QParams, Role
from onnxq.views.shown_result import ShownResult

if TYPE_CHECKING:
    from rich.console import RenderableType

JSON_SCHEMA = "onnxq.qparams"
JSON_VERSION = 1


@dataclass(repr=False)
class QParamTable(ShownResult):
    """Rows in graph order: the quantization of a whole model, apart from its graph.

    A row belongs to all readers of its tensor unless it names some. Rows of one tensor are
    applied in order, each directly before its readers, so that two rows for the same reader are a
    requantization.
    """

    rows: list[QParams] = field(default_factory=list)
    logarithmic: list[LogParams] = field(default_factory=list)
    """The rows of grids without a scale, for targets with such grids."""

    def __post_init__(self) -> None:
        check("QParamTable", "rows", self.rows, (list,))
        check("QParamTable", "logarithmic", self.logarithmic, (list,))
        for row in self.rows:
            if not isinstance(row, QParams):
                check("QParamTable", "rows", row, (QParams,))

    def __repr__(self) -> str:
        rows: list[QParams | LogParams] = [*self.rows, *self.logarithmic]
        counts = Counter(str(row.role) for row in rows)
        told = ", ".join(f"{count} {role}" for role, count in counts.items())
        return f"<QParamTable: {told or 'empty'}>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views import tables

        return tables.qparams(self, most=most)

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows at all."""
        return not self.rows and not self.logarithmic

    def __iter__(self) -> Iterator[QParams]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, tensor: object) -> bool:
        return any(row.tensor == tensor for row in self.rows)

    def __getitem__(self, tensor: str) -> QParams:
        """The only row of `tensor`."""
        found = [row for row in self.rows if row.tensor == tensor]
        if len(found) == 1:
            return found[0]
        if not found:
            names = {row.tensor for row in self.rows}
            raise QParamsError(
                f"no row for tensor '{tensor}'",
                fix=near_matches(tensor, names) if names else "collect quantizers first",
            )
        raise QParamsError(
            f"tensor '{tensor}' has {len(found)} rows",
            fix="run 'unify-scales', or iterate over the table",
        )

    def add(self, row: QParams) -> None:
        """Append a row."""
        self.rows.append(row)

    def extend(self, rows: Iterable[QParams]) -> None:
        """Append rows."""
        self.rows.extend(rows)

    def of(self, *roles: Role) -> list[QParams]:
        """The rows with one of these roles."""
        return [row for row in self.rows if row.role in roles]

    def copy(self) -> QParamTable:
        """A table with the same (immutable) rows."""
        return QParamTable(list(self.rows), list(self.logarithmic))

    def to_json(self) -> dict[str, Any]:
        """The whole table as one JSON document with schema name and version."""
        document: dict[str, Any] = {
            "schema": JSON_SCHEMA,
            "version": JSON_VERSION,
            "rows": [row.to_json() for row in self.rows],
        }
        if self.logarithmic:
            document["logarithmic"] = [row.to_json() for row in self.logarithmic]
        return document

    def dumps(self) -> str:
        """The JSON text of the table."""
        return json.dumps(self.to_json(), ensure_ascii=False, allow_nan=False, indent=1)

    @classmethod
    def from_json(cls, document: Any) -> QParamTable:
        """Inverse of `to_json`; rejects other schemas and newer versions."""
        fix = f"give a file written by onnxq (schema '{JSON_SCHEMA}', version <= {JSON_VERSION})"
        if not isinstance(document, dict) or document.get("schema") != JSON_SCHEMA:
            raise QParamsError("this JSON is not an onnxq quantization table", fix=fix)
        version = document.get("version")
        if type(version) is not int or not 1 <= version <= JSON_VERSION:
            raise QParamsError(
                f"cannot read a quantization table of version {json.dumps(version)[:60]}", fix=fix
            )
        with rejecting():
            whole = Entry(document, "the quantization table", fix)
            whole.only(("schema", "version", "rows"), ("logarithmic",))
            for key in ("rows", "logarithmic"):
                if not isinstance(document.get(key, []), list):
                    raise whole.error(f"'{key}' is not a list of rows")
        return cls(
            [QParams.from_json(row) for row in document["rows"]],
            [LogParams.from_json(row) for row in document.get("logarithmic", ())],
        )

    @classmethod
    @takes(text=str)
    def loads(cls, text: str) -> QParamTable:
        """Inverse of `dumps`."""
        with rejecting():
            document = strict_json.parse(
                text, "an onnxq quantization table", "check that the file is complete"
            )
        return cls.from_json(document)
