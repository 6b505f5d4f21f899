"""Chooses the data file of a model to be saved: never one with weights of another model.

Weights over 1 KiB of a model with external data are in `<name>.data`. A file of that name is
overwritten only if it belongs to the model that is replaced, and to no other: another model in the
folder may have its weights there, even the one that is being saved. Otherwise the weights go to
`<name>.1.data`, and so on.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from onnxq.disk import regular_file
from onnxq.errors import LoadError, SaveError

_MARK = b"location"
"""The key that every external tensor has in a file."""


@dataclass(frozen=True)
class Origin:
    """The file that a model was loaded from, and the files with its weights."""

    path: Path
    data: frozenset[Path]

    @staticmethod
    def of(path: Path, content: bytes, model: ModelProto) -> Origin:
        """The origin of a `model` that was parsed from `content`."""
        folder = path.absolute().parent
        names = locations(model) if _MARK in content else ()
        return Origin(path.absolute(), frozenset(folder / name for name in names))

    def holds(self, path: Path) -> bool:
        """Whether `path` is a file with weights of the model."""
        return _identity(path) in ({_identity(p) for p in self.data} - {None})


def locations(model: ModelProto) -> set[str]:
    """The locations of a model's external data, as the model spells them."""
    tensors = itertools.chain(
        _tensors(model.graph), *(_of_nodes(function.node) for function in model.functions)
    )
    return {
        entry.value
        for tensor in tensors
        if tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location" and "\0" not in entry.value
    }


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Collection[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for graph in (attribute.g, *attribute.graphs):
                yield from _tensors(graph)


def check_needed(path: Path, origin: Origin | None) -> None:
    """Reject overwriting weights of the model being saved."""
    if origin is not None and origin.holds(path) and not _same(path, origin.path):
        raise SaveError(
            f"{path} contains weights of {origin.path}, and writing it would destroy them",
            fix="save under another name or into another folder",
        )


def data_path(path: Path, origin: Origin | None, taken: Collection[str]) -> Path:
    """The data file for a model that is saved as `path`; `taken` are names of other new files."""
    numbered = (path.with_name(f"{path.name}.{number}.data") for number in itertools.count(1))
    return next(
        data
        for data in itertools.chain([path.with_name(f"{path.name}.data")], numbered)
        if data.name not in taken and (not os.path.lexists(data) or _is_own(data, path, origin))
    )


def _is_own(data: Path, path: Path, origin: Origin | None) -> bool:
    """Whether `data` contains weights of the model at `path` and of no other in the folder."""
    if not data.is_file():
        return True  # a folder, which saving rejects, or a dead link, which it follows
    if origin is not None and origin.holds(data) and not _same(path, origin.path):
        return False
    return data.name in _names_in(path) and not _others(data, path)


def _names_in(path: Path) -> set[str]:
    """The locations of external data in the model at `path`; none if it is not a model."""
    if not _mentions(path, [_MARK]):
        return set()
    model = ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except (DecodeError, OSError):
        return set()
    return {os.path.normpath(name) for name in locations(model)}


def _others(data: Path, path: Path) -> bool:
    """Whether another model in the folder names the file, or a link to it.

    Any mention of the name counts: it is better to keep a file too many than to lose one.
    """
    same = _identity(data)
    entries = list(data.parent.iterdir())
    names = [os.fsencode(entry.name) for entry in entries if _identity(entry) == same]
    mine = os.path.realpath(path)
    return any(
        _mentions(entry, names)
        for entry in entries
        if entry.suffix == ".onnx" and os.path.realpath(entry) != mine
    )


def _mentions(path: Path, words: list[bytes]) -> bool:
    try:
        with (
            regular_file.open_(path) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            return any(text.find(word) >= 0 for word in words)
    except (LoadError, OSError, ValueError):  # there is no such file, or it is empty
        return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _same(path: Path, other: Path) -> bool:
    found = _identity(path)
    return found is not None and found == _identity(other)
