"""What a conversion made: files not yet written, how they came about, and their proofs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from onnxq import files
from onnxq.graph import Model, save
from onnxq.pass_ import Trace
from onnxq.prove import Proof
from onnxq.qparam_table import QParamTable
from onnxq.side_file import Content


@dataclass(frozen=True)
class Artifact:
    """One file of a conversion, before it is written."""

    suffix: str
    summary: str
    content: Model | Content

    def write(self, folder: Path, stem: str) -> list[Path]:
        """Write the file; returns what was written."""
        path = folder / f"{stem}{self.suffix}"
        if isinstance(self.content, Model):
            return save(self.content, path)
        if isinstance(self.content, bytes):
            return [files.write_bytes(path, self.content)]
        return [files.write_text(path, self.content)]


@dataclass(kw_only=True)
class MadeFiles:
    """Files that belong together, and whether they are proven."""

    stem: str
    table: QParamTable
    """The quantization that they hold."""
    artifacts: tuple[Artifact, ...]
    traces: tuple[Trace, ...]
    proofs: tuple[Proof, ...] = ()
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    """What `save` wrote."""

    @property
    def proven(self) -> bool:
        """Whether there is a proof and all of it holds."""
        return bool(self.proofs) and all(p.passed for p in self.proofs)

    def save(self, folder: str | Path) -> list[Path]:
        """Write all files into `folder`, or none: they are complete before the first is moved."""
        self.files = _write_all(self.artifacts, Path(folder), self.stem)
        return self.files


def _write_all(artifacts: Iterable[Artifact], folder: Path, stem: str) -> list[Path]:
    files.check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".onnxq-", dir=folder) as name:
        made = [p for a in artifacts for p in a.write(Path(name), stem)]
        targets = [folder / p.name for p in made]
        if made:
            files.move_all(list(zip(made, targets, strict=True)))
    return targets
