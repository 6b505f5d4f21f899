"""The statistics of all observed tensors, and the file that holds them.

A file is an .npz archive with fixed dates, so equal statistics are equal bytes. Its entry
`header` is JSON: which tensors were observed and how, how many samples were taken, and a
fingerprint of the model. Parts are merged only if model and tensors agree, and if they have no
samples in common (`taken`). A run that is not finished says in `unfinished` which run it is, and is
not merged.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.arrays.array_files import Stack, open_npz
from onnxq.arrays.pieces import blocks
from onnxq.disk.file_set import FileSet
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.observing.taken import Taken
from onnxq.observing.tensor_statistics import TensorStatistics, Wanted
from onnxq.parsing import strict_json
from onnxq.quant.qparams import Array
from onnxq.storage.tensors import values_of
from onnxq.views.shown_result import ShownResult

if TYPE_CHECKING:
    from rich.console import RenderableType

VERSION = 2
_FIX = "give a file written by 'onnxq calibrate'"
_BROKEN = (KeyError, ValueError, TypeError, IndexError, EOFError)


@dataclass(repr=False)
class Statistics(ShownResult):
    """What was seen of each tensor."""

    model: str
    """Fingerprint of the model that was run."""
    tensors: dict[str, TensorStatistics] = field(default_factory=dict)
    samples: int = 0
    unfinished: str = ""
    """Which samples of which data the run would take, if it is not finished."""
    taken: Taken = field(default_factory=Taken)
    """Which samples these are, if their data could be read from its beginning."""

    def __repr__(self) -> str:
        return f"<Statistics of {len(self.tensors)} tensors, {self.samples} samples>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views.statistics import statistics

        return statistics(self, most)

    @classmethod
    def of(cls, model: str, wanted: Mapping[str, Wanted]) -> Statistics:
        """Empty statistics of these tensors."""
        return cls(model, {name: TensorStatistics(each) for name, each in wanted.items()})

    @property
    def wanted(self) -> dict[str, Wanted]:
        """What is kept of each tensor."""
        return {name: each.wanted for name, each in self.tensors.items()}

    def merge(self, other: Statistics) -> None:
        """Take in the statistics of another part of the data."""
        if other.unfinished:
            raise LoadError(
                "the statistics are of a run that is not finished",
                fix="finish it: repeat its command with --resume",
            )
        if other.model != self.model or other.wanted != self.wanted:
            raise LoadError(
                "the statistics are of different models, or of different tensors",
                fix="merge parts that were made with the same model and the same options",
            )
        self.taken = self.taken.joined(other.taken)
        for name, mine in self.tensors.items():
            mine.merge(other.tensors[name])
        self.samples += other.samples

    def dumps(self) -> bytes:
        """The bytes of a file."""
        names = sorted(self.tensors)
        header = {
            "onnxq": "statistics",
            "version": VERSION,
            "model": self.model,
            "samples": self.samples,
            "tensors": [{"name": n, **asdict(self.tensors[n].wanted)} for n in names],
            **({"taken": self.taken.to_json()} if self.taken.classes else {}),
            **({"unfinished": self.unfinished} if self.unfinished else {}),
        }
        text = json.dumps(header, ensure_ascii=False).encode()
        arrays: dict[str, Array] = {"header": np.frombuffer(text, np.uint8)}
        for number, name in enumerate(names):
            for key, value in self.tensors[name].state().items():
                arrays[f"{number}.{key}"] = np.asarray(value)
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **arrays)
        return file.getvalue()

    def save(self, path: Path) -> None:
        """Write the file, or leave what was there."""
        with FileSet(path.parent, (path.name,)) as files:
            files.stage(path.name).write(self.dumps())

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """Read a file."""
        try:
            return cls._loaded({name: _whole(stack) for name, stack in open_npz(path).items()})
        except LoadError as error:
            named = error.what if str(path) in error.what else f"'{path}': {error.what}"
            raise LoadError(named, fix=_FIX) from error
        except _BROKEN as error:
            raise LoadError(f"'{path}' does not contain statistics ({error})", fix=_FIX) from error

    @classmethod
    def loads(cls, data: bytes) -> Statistics:
        """Read the bytes of a file."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                return cls._loaded(dict(arrays))
        except (*_BROKEN, zipfile.BadZipFile) as error:
            raise LoadError(f"these bytes are not statistics ({error})", fix=_FIX) from error

    @classmethod
    def _loaded(cls, arrays: Mapping[str, Array]) -> Statistics:
        text = arrays["header"].astype(np.uint8).tobytes().decode()
        header = strict_json.Entry.parse(text, "the header of the statistics", _FIX)
        header.only(("onnxq", "version", "model", "samples", "tensors"), ("taken", "unfinished"))
        header.choice("onnxq", "statistics")
        header.choice("version", VERSION)
        made = cls(header.text("model"), samples=header.integer("samples"))
        if made.samples < 0:
            raise header.error("'samples' is negative")
        if "unfinished" in header.value:
            made.unfinished = header.text("unfinished")
        made.taken = _taken(header.value.get("taken", []))
        states: dict[int, dict[str, Any]] = {}
        for key, value in arrays.items():
            index, _, part = key.partition(".")
            if part:
                states.setdefault(int(index), {})[part] = value
        for number, each in enumerate(header.value["tensors"]):
            entry = strict_json.Entry.of(each, f"tensor {number} of the header", _FIX)
            entry.only(("name", *(f.name for f in fields(Wanted))))
            channels, rows = (
                None if each[key] is None else entry.integer(key) for key in ("channels", "rows")
            )
            flags = (entry.choice(key, True, False) for key in ("distribution", "spread"))
            wanted = Wanted(channels, rows, *flags)
            made.tensors[entry.text("name")] = TensorStatistics.from_state(wanted, states[number])
        return made


def _taken(found: Any) -> Taken:
    """Classes of samples, from JSON."""
    classes = [(str(name), int(index), int(of)) for name, index, of in found]
    if any(not 0 <= index < of for _, index, of in classes):
        raise ValueError("samples that no part of the data has")
    return Taken(frozenset(classes))


def merged(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of all parts together; their order does not matter."""
    whole: Statistics | None = None
    for part in parts:
        if whole is None:
            whole = Statistics.of(part.model, part.wanted)
        whole.merge(part)
    if whole is None:
        raise LoadError("there are no statistics to merge", fix="give at least one file")
    return whole


def fingerprint(model: Model) -> str:
    """A short text that differs between models with other nodes, attributes, names or weights.

    All weights are read, as one run of the model does.
    """
    digest = hashlib.sha256()
    constants: dict[int, gs.Constant] = {}
    for node in model.nodes():
        names = [t.name for t in (*node.inputs, *node.outputs)]
        digest.update("\0".join([str(node.domain), str(node.op), *names]).encode())
        for key, value in sorted(node.attrs.items()):
            if isinstance(value, gs.Constant):
                constants[id(value)] = value
            elif not isinstance(value, gs.Graph):  # its nodes are among those of the model
                digest.update(f"\0{key}={value}".encode())
        constants |= {id(t): t for t in node.inputs if isinstance(t, gs.Constant)}
    for tensor in constants.values():
        values = values_of(tensor)
        digest.update(f"\0{tensor.name} {values.dtype} {values.shape}\0".encode())
        for at in blocks(values.shape):
            digest.update(_bytes(values[at]))
    return digest.hexdigest()[:16]


def _bytes(values: Array) -> bytes:
    return repr(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()


def _whole(stack: Stack) -> Array:
    (value,) = stack.pieces(None)
    return np.asarray(value)


__all__ = ["Statistics", "fingerprint", "merged"]
