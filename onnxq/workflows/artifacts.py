"""The result of a conversion: files not yet written, the traces of passes, and their proofs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.disk.data_file import Origin, check_needed
from onnxq.disk.file_set import FileSet, check_folder
from onnxq.disk.scratch import scratch_folder
from onnxq.errors import OptionError, SaveError
from onnxq.graph import Model, stage
from onnxq.pass_ import Trace
from onnxq.proof.prove import Proof
from onnxq.quant.qparam_table import QParamTable
from onnxq.side_files.side_file import Content
from onnxq.views.shown_result import ShownResult

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Artifact:
    """One file of a conversion, before it is written."""

    suffix: str
    summary: str
    content: Model | Content

    def __repr__(self) -> str:
        return f"<Artifact {self.suffix}: {self.summary}>"

    def stage(self, files: FileSet, stem: str) -> list[Path]:
        """Add the file to `files`; returns the paths to be written."""
        name = f"{stem}{self.suffix}"
        if isinstance(self.content, Model):
            return [files.folder / made for made in stage(self.content, files, name)]
        content = self.content
        files.stage(name).write(content if isinstance(content, bytes) else content.encode())
        return [files.folder / name]


@contextlib.contextmanager
def written_apart(artifacts: Iterable[Artifact]) -> Iterator[dict[str, Path]]:
    """The files in a temporary folder, by suffix, as long as they are needed."""
    with scratch_folder() as folder:
        with FileSet(folder, durable=False) as files:
            written = {a.suffix: a.stage(files, "model")[0] for a in artifacts}
        yield written


@dataclass(kw_only=True, repr=False)
class MadeFiles(ShownResult):
    """Files that belong together, and their proofs."""

    stem: str
    table: QParamTable
    """The quantization in the files."""
    artifacts: tuple[Artifact, ...]
    traces: tuple[Trace, ...]
    proofs: tuple[Proof, ...] = ()
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    """The files that `save` wrote."""

    @property
    def headline(self) -> str:
        """What it is and whether it is proven, in one line."""
        count = len(self.artifacts)
        state = "proven" if self.proven else "NOT PROVEN" if self.proofs else "not verified"
        return f"{self._what()}: {count} file{'s' * (count != 1)}, {state}"

    def _what(self) -> str:
        return f"files of {self.stem}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.headline}>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views import tables

        return tables.short_conversion(self, most)

    @property
    def proven(self) -> bool:
        """Whether there is a proof and all of it holds."""
        return bool(self.proofs) and all(p.passed for p in self.proofs)

    def save(self, folder: str | Path) -> list[Path]:
        """Write all files into `folder`, or none: they are complete before the first is moved."""
        if folder == "":  # Path("") would be the current folder
            raise SaveError("the path is empty", fix="give a folder")
        folder = Path(folder)
        if Path(self.stem).name != self.stem:
            raise OptionError(
                f"'{self.stem}' cannot be used as a file stem", fix="give a stem without '/'"
            )
        names = [f"{self.stem}{artifact.suffix}" for artifact in self.artifacts]
        check_folder(folder)
        for origin in filter(None, self._origins()):
            for name in names:
                check_needed(folder / name, origin)
        with FileSet(folder, names) as files:
            written = [path for a in self.artifacts for path in a.stage(files, self.stem)]
        self.files = written
        return written

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "files": [str(p) for p in self.files],
            "proven": self.proven,
            "proofs": [p.to_json() for p in self.proofs],
            "notes": self.notes,
            "table": self.table.to_json(),
            "traces": [t.to_json() for t in self.traces],
        }

    def _origins(self) -> Iterator[Origin | None]:
        """The source files of the models."""
        for artifact in self.artifacts:
            if isinstance(artifact.content, Model):
                yield artifact.content.origin
