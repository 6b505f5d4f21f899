"""A whole model in a target's own files, for targets that do not read ONNX.

`write` makes all files from the legal canonical graph; `read` makes a canonical graph from them
again, which is how they are proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from onnxq.graph import Model
from onnxq.side_files.side_file import Content


@dataclass(frozen=True)
class NativeFormat:
    """One format: the files of a model by part, such as 'param' and 'bin'."""

    name: str
    write: Callable[[Model], Mapping[str, Content]]
    read: Callable[[Mapping[str, Content]], Model]


@dataclass(frozen=True)
class NativeFile:
    """One of the files; files of a backend with the same format make one model."""

    suffix: str
    format: NativeFormat
    part: str
    """The part that the format writes into this file."""
    summary: str
    binary: bool = False

    def decode(self, data: bytes) -> Content:
        """The content of a file of these bytes."""
        return data if self.binary else data.decode("utf-8")


def models(outputs: Iterable[object]) -> dict[NativeFormat, list[NativeFile]]:
    """The native files among `outputs`, grouped by model."""
    found: dict[NativeFormat, list[NativeFile]] = {}
    for output in outputs:
        if isinstance(output, NativeFile):
            found.setdefault(output.format, []).append(output)
    return found
