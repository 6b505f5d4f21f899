"""Data in records: files, pictures or arrays, each with the place it comes from.

A record is an .npz file (one array per input, by name), an .npy file or a picture (for a model with
one input), or, in Python, a dict of arrays or an array. `onnxq.running.samples` splits them into
samples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from onnxq.arrays.array_files import Stack, StoredStack, in_memory, open_npz, readable
from onnxq.arrays.pictures import Pictures, PictureStack, is_picture
from onnxq.errors import LoadError
from onnxq.quant.qparams import Array
from onnxq.running.ort_tensors import TensorSpec, is_size

Data: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | Array | Iterable[Any] | None"
Record: TypeAlias = "tuple[str, Mapping[str, Stack]]"

_ARRAYS = (".npy", ".npz")


def records(data: Data, inputs: Sequence[TensorSpec]) -> Iterator[Record]:
    """Each record with where it comes from, in words, and its arrays by the names of inputs."""
    if isinstance(data, (str, os.PathLike)):
        files = files_of(data)
        if not files:
            raise _no_files(Path(data), inputs)
        if os.path.isdir(data):
            _check_one_kind(Path(data))
        for file in files:
            yield _file_record(file, inputs)
    elif isinstance(data, Pictures):
        yield from _pictures(data, inputs)
    elif isinstance(data, (Mapping, np.ndarray)):
        yield _item_record("data", data, inputs)
    else:
        for index, item in enumerate(data or ()):
            yield _item_record(f"data[{index}]", item, inputs)


def _pictures(data: Pictures, inputs: Sequence[TensorSpec]) -> Iterator[Record]:
    name, spec = _only_input("a picture", inputs), inputs[0]
    if len(spec.shape) != 4 or not matches((1, *data.shape), spec.shape):
        raise LoadError(
            f"pictures become {list((1, *data.shape))} ({data.layout}), but input '{name}' is "
            f"{spec}",
            fix=f"give {fitting}{'' if 'gray' in fitting else ' --channels rgb'}"
            if (fitting := _picture_options(inputs))
            else "choose --image-size, --layout and --channels as the input has them",
        )
    integers = spec.dtype is not None and spec.dtype.kind in "iu"
    if integers and (any(data.mean) or set(data.std) != {1.0}):
        raise LoadError(
            f"input '{name}' takes pixels as integers ({spec}), without a mean or a deviation",
            fix="leave --mean and --std out",
        )
    if data.path.is_dir():
        _check_one_kind(data.path)
    for file in data.files():
        yield f"'{file}'", {name: PictureStack(file, data, integers)}


def files_of(data: Data) -> list[Path]:
    """The files that `data` consists of; none if it is in memory or a folder without any."""
    if isinstance(data, Pictures):
        return data.files()
    if not isinstance(data, (str, os.PathLike)):
        return []
    path = Path(data)
    if not os.path.isdir(path):
        return [path]
    try:
        found = sorted(path.iterdir())
    except OSError as error:
        raise LoadError(
            f"folder '{path}' cannot be read ({error.strerror})", fix="check its permissions"
        ) from error
    return [p for p in found if p.suffix in _ARRAYS]


def _check_one_kind(folder: Path) -> None:
    """Refuse a folder of arrays and pictures: one of them would be left out in silence."""
    names = sorted(folder.iterdir())
    arrays = [p for p in names if p.suffix in _ARRAYS]
    pictures = [p for p in names if is_picture(p)]
    if arrays and pictures:
        raise LoadError(
            f"folder '{folder}' contains arrays ('{arrays[0].name}') and pictures "
            f"('{pictures[0].name}'): only one kind can be the data",
            fix="move one kind into a folder of its own",
        )


def _no_files(folder: Path, inputs: Sequence[TensorSpec]) -> LoadError:
    return LoadError(
        f"folder '{folder}' contains no .npy or .npz file",
        fix=_for_pictures(inputs)
        if any(map(is_picture, folder.iterdir()))
        else "put the samples into it",
    )


def _for_pictures(inputs: Sequence[TensorSpec]) -> str:
    fitting = _picture_options(inputs) or "--image-size HxW"
    return f"for pictures, give the size the model takes: {fitting} (and --mean, --std)"


def _picture_options(inputs: Sequence[TensorSpec]) -> str:
    """The options that make pictures fit the only input; empty if its shape does not tell."""
    shape = inputs[0].shape if len(inputs) == 1 else ()
    if len(shape) != 4:
        return ""
    for layout, axes in (("nchw", (1, 2, 3)), ("nhwc", (3, 1, 2))):
        channels, height, width = (shape[axis] for axis in axes)
        if channels in (1, 3):
            size = f"{height}x{width}" if is_size(height) and is_size(width) else "HxW"
            gray = " --channels gray" if channels == 1 else ""
            return f"--image-size {size} --layout {layout}{gray}"
    return ""


def _file_record(path: Path, inputs: Sequence[TensorSpec]) -> Record:
    where = f"'{path}'"
    if path.suffix == ".npz":
        return where, open_npz(path)
    if path.suffix == ".npy":
        return where, {_only_input(where, inputs): StoredStack(path)}
    with readable(path):
        pass
    raise LoadError(
        f"{where} is not a data file",
        fix=_for_pictures(inputs)
        if is_picture(path)
        else "give an .npz file, an .npy file (one input) or a folder of them",
    )


def _item_record(where: str, item: Any, inputs: Sequence[TensorSpec]) -> Record:
    if isinstance(item, Mapping):
        return where, {str(name): in_memory(value) for name, value in item.items()}
    return where, {_only_input(where, inputs): in_memory(item)}


def _only_input(where: str, inputs: Sequence[TensorSpec]) -> str:
    if len(inputs) != 1:
        names = ", ".join(f"'{i.name}'" for i in inputs)
        raise LoadError(
            f"{where} is a single array, but the model has {len(inputs)} inputs: {names}",
            fix="give an .npz file or a dict with one array for each input, by name",
        )
    return inputs[0].name


def matches(shape: Sequence[int], wanted: Sequence[int | str | None]) -> bool:
    """Whether an array of this shape fits dimensions of a model, of which some are open."""
    return all(not is_size(w) or s == w for s, w in zip(shape, wanted, strict=True))
