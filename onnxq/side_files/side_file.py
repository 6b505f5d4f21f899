"""A side file: the quantization of a clean model next to it, in a target's own format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from onnxq.discovery import Broken, discover, find
from onnxq.errors import LoadError, OptionError, SaveError
from onnxq.graph import Model
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role

FORMATS_GROUP = "onnxq.formats"

Content = str | bytes
"""The content of a side file: text, or bytes if the format is binary."""


def _never(content: Any) -> bool:
    return False


def _no_tensor(content: Any) -> frozenset[str]:
    return frozenset()


class EmptySideFile(SaveError):
    """A side file without any rows: its target would run the model in float."""


@dataclass(frozen=True)
class SideFile:
    """One format: `write` and `read` are inverse to each other for the rows it can contain."""

    name: str
    summary: str
    write: Callable[[QParamTable, Model], Content]
    """The content for a table and its clean model; rejects rows that it cannot contain."""
    read: Callable[[Any, Model], QParamTable]
    """Inverse of `write`: takes its result, text or bytes."""
    recognises: Callable[[Any], bool] = _never
    """Whether content is of this format; file names prove nothing."""
    detection: str = ""
    """A description of what `recognises` looks for."""
    versions: tuple[str, ...] = ()
    """The values of "version" that identify content of this format, if there are any."""
    binary: bool = False
    """Whether the content is bytes; otherwise it is text, stored as UTF-8."""
    suffix: str = ".json"
    """The ending of file names."""
    weights: bool = True
    """Whether it can contain weights, not only activations."""
    readers: bool = False
    """Whether a row may be for some consumers of its tensor only."""
    narrow: bool = True
    """Whether it can contain ranges such as -127..127."""
    magnitudes: bool = False
    """Whether it contains only the largest magnitude of each range: rows are read back as symmetric
    grids of the same reach, not as they were written."""
    float_tensors: Callable[[Any], frozenset[str]] = _no_tensor
    """The tensors that the content declares to stay float: they need no row."""

    def __post_init__(self) -> None:
        if not self.suffix.startswith("."):
            raise OptionError(
                f"format '{self.name}': suffix={self.suffix!r}", fix=f"write '.{self.suffix}'"
            )
        if self.recognises is not _never and not self.detection:
            raise OptionError(
                f"format '{self.name}' has `recognises` and no `detection`",
                fix="say in `detection` what it looks for; an unrecognised file lists it",
            )

    def decode(self, data: bytes) -> Content:
        """The content of a file of these bytes."""
        if self.binary:
            return data
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise LoadError(
                f"byte {error.start} is not UTF-8 text", fix=f"give a file of format {self.name}"
            ) from error

    def accepts(self, data: bytes) -> bool:
        """Whether a file of these bytes is of this format."""
        try:
            return self.recognises(self.decode(data))
        except LoadError:
            return False

    def write_some(self, table: QParamTable, model: Model) -> Content:
        """The result of `write`; an error if a table of weights alone leaves it empty."""
        content = self.write(table, model)
        self._check("write", content, bytes if self.binary else str)
        roles = {row.role for row in (*table, *table.logarithmic)}
        if Role.ACTIVATION not in roles and self.read_table(content, model).is_empty:
            raise EmptySideFile(
                "the side file would be empty: no activation of the model has a quantizer",
                fix=f"{self.name} cannot contain weights: calibrate the model or train it "
                "with quantized activations; for weights alone take a backend such as "
                "onnxruntime, openvino or qnn, or the format onnxq",
            )
        return content

    def read_table(self, content: Content, model: Model) -> QParamTable:
        """The result of `read`."""
        table = self.read(content, model)
        self._check("read", table, QParamTable)
        return table

    def _check(self, function: str, found: object, wanted: type) -> None:
        """Refuse what a function of the format gave, if it is something else."""
        if not isinstance(found, wanted):
            given = "nothing" if found is None else f"a {type(found).__name__}"
            raise OptionError(
                f"format '{self.name}': {function}() returned {given}",
                fix=f"return a {wanted.__name__} from {function}()",
            )

    def to_json(self) -> dict[str, Any]:
        """A JSON object for listings."""
        return {
            "name": self.name,
            "summary": self.summary,
            "reads": True,
            "writes": True,
            "binary": self.binary,
            "weights": self.weights,
            "magnitudes": self.magnitudes,
            "suffix": self.suffix,
            "detection": self.detection or "not recognised by content",
        }


def formats() -> Mapping[str, SideFile | Broken]:
    """All known side-file formats by name."""
    return discover("onnxq.formats", FORMATS_GROUP, _formats_in, "format")


def find_format(name: str) -> SideFile:
    """The side-file format of that name."""
    found: SideFile = find(name, formats(), "format", "onnxq formats")
    return found


def _formats_in(thing: Any) -> dict[str, Any]:
    if isinstance(thing, ModuleType):
        thing = getattr(thing, "FORMAT", None)
        return {} if thing is None else {thing.name: thing}
    if not isinstance(thing, SideFile):
        raise TypeError(f"{thing!r} is not an onnxq.side_files.side_file.SideFile")
    return {thing.name: thing}
