"""A side file: quantization written next to a clean model, in a target's own format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from onnxq.discovery import Broken, discover, find
from onnxq.errors import LoadError, SaveError
from onnxq.graph import Model
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role

FORMATS_GROUP = "onnxq.formats"

Content = str | bytes
"""What a side file holds: text, or bytes where the format is binary."""


def _never(content: Any) -> bool:
    return False


def _no_tensor(content: Any) -> frozenset[str]:
    return frozenset()


class EmptySideFile(SaveError):
    """A side file would say nothing, and whoever reads it would take the model for a float one."""


@dataclass(frozen=True)
class SideFile:
    """One format: `write` and `read` are inverse to each other for the rows it can hold."""

    name: str
    summary: str
    write: Callable[[QParamTable, Model], Content]
    """The content for a table and the clean model beside it; refuses rows it cannot hold."""
    read: Callable[[Any, Model], QParamTable]
    """Inverse of `write`: takes what `write` returns, text or bytes."""
    recognises: Callable[[Any], bool] = _never
    """Whether content is of this format, by what it contains: names of files prove nothing."""
    detection: str = ""
    """In words, what `recognises` looks for."""
    versions: tuple[str, ...] = ()
    """What content of this format may say as its "version", where that tells it apart."""
    binary: bool = False
    """Whether the content is bytes; otherwise it is text, stored as UTF-8."""
    suffix: str = ".json"
    """How names of such files end."""
    weights: bool = True
    """Whether weights can be held, and not activations alone."""
    readers: bool = False
    """Whether a row may be for some readers of its tensor, and not for all."""
    narrow: bool = True
    """Whether ranges such as -127..127 can be held."""
    magnitudes: bool = False
    """Whether only the largest magnitude of each range is held: what is read back is a symmetric
    grid of the same reach, and not the one that was written."""
    float_tensors: Callable[[Any], frozenset[str]] = _no_tensor
    """Tensors that the content says stay float: they have no row and need none."""

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
        """What `write` makes, refused where nothing of weights alone can be told."""
        content = self.write(table, model)
        roles = {row.role for row in (*table, *table.logarithmic)}
        if Role.ACTIVATION not in roles and self.read(content, model).is_empty:
            raise EmptySideFile(
                "the side file would be empty: no activation of the model has a quantizer",
                fix=f"{self.name} cannot contain weights: calibrate the model or train it "
                "with quantized activations; for weights alone take a backend such as "
                "onnxruntime, openvino or qnn, or the format onnxq",
            )
        return content

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
