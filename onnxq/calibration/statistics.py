"""The statistics of all observed tensors, and the file that holds them.

A file is an .npz archive with fixed dates, so equal statistics are equal bytes. Its entry
`header` is JSON: which tensors were observed and how, how many samples were taken, and a
fingerprint of the model. Parts are merged only if these agree.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.arrays.array_files import open_npz
from onnxq.calibration.tensor_statistics import TensorStatistics, Wanted
from onnxq.disk.file_set import FileSet
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.quant.qparams import Array

VERSION = 1
_FIX = "give a file written by 'onnxq calibrate'"


@dataclass
class Statistics:
    """What was seen of each tensor."""

    model: str
    """Fingerprint of the model that was run."""
    tensors: dict[str, TensorStatistics] = field(default_factory=dict)
    samples: int = 0

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
        if other.model != self.model or other.wanted != self.wanted:
            raise LoadError(
                "the statistics are of different models, or of different tensors",
                fix="merge parts that were made with the same model and the same options",
            )
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
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise LoadError(f"'{path}' does not contain statistics ({error})", fix=_FIX) from error

    @classmethod
    def _loaded(cls, arrays: Mapping[str, Array]) -> Statistics:
        text = arrays["header"].astype(np.uint8).tobytes().decode()
        header = strict_json.Entry.parse(text, "the header of the statistics", _FIX)
        header.only(("onnxq", "version", "model", "samples", "tensors"))
        header.choice("onnxq", "statistics")
        header.choice("version", VERSION)
        made = cls(header.text("model"), samples=header.integer("samples"))
        states: dict[int, dict[str, Any]] = {}
        for key, value in arrays.items():
            index, _, part = key.partition(".")
            if part:
                states.setdefault(int(index), {})[part] = value
        for number, each in enumerate(header.value["tensors"]):
            wanted = Wanted(each["channels"], each["rows"], each["distribution"])
            made.tensors[each["name"]] = TensorStatistics.from_state(wanted, states[number])
        return made


def merged(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of all parts together; their order does not matter."""
    whole: Statistics | None = None
    for part in parts:
        if whole is None:
            whole = part
        else:
            whole.merge(part)
    if whole is None:
        raise LoadError("there are no statistics to merge", fix="give at least one file")
    return whole


def fingerprint(model: Model) -> str:
    """A short text that differs between models with other nodes, names or shapes of weights.

    Values of weights are left out: they may be many gigabytes.
    """
    digest = hashlib.sha256()
    for node in model.nodes():
        parts = [str(node.op), *(t.name for t in node.inputs), *(t.name for t in node.outputs)]
        digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:16]


def _whole(stack: Any) -> Array:
    (value,) = stack.pieces(None)
    return np.asarray(value)


__all__ = ["Statistics", "fingerprint", "merged"]
