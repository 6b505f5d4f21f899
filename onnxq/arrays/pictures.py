"""Pictures as samples: files that Pillow reads, one at a time.

A picture is converted to three channels (or one, 'gray'), resized to height x width without
keeping its proportions (bilinear; neither cropped nor turned by its EXIF data), and given to the
model as

    (p / 255 - mean) / std        p from 0 to 255, for inputs of a float type
    p                             for inputs of an integer type

in the order of the names of the files. With the default mean 0 and std 1 values are 0 to 1.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onnxq.arrays.pieces import Array
from onnxq.disk import regular_file
from onnxq.errors import LoadError, OptionError

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
LARGEST_SIDE = 1 << 14
"""Most pixels of a side after resizing."""

Layout = Literal["nchw", "nhwc"]
Channels = Literal["rgb", "bgr", "gray"]

_DEEP = ("I", "F")
"""Pillow's modes of more than 8 bits begin so."""
_UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, struct.error)


@dataclass(frozen=True)
class Pictures:
    """A folder of pictures (or one picture), and how they become samples."""

    path: Path
    size: tuple[int, int]
    """Height and width."""
    mean: tuple[float, ...] = (0.0,)
    """One number, or one for each channel in the order of `channels`."""
    std: tuple[float, ...] = (1.0,)
    layout: Layout = "nchw"
    channels: Channels = "rgb"

    def __post_init__(self) -> None:
        if len(self.size) != 2 or not all(1 <= side <= LARGEST_SIDE for side in self.size):
            raise OptionError(
                f"pictures cannot have the size {'x'.join(map(str, self.size))}",
                fix=f"write height x width, each from 1 to {LARGEST_SIDE}, like 224x224",
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.depth) or not np.isfinite(values).all():
                raise OptionError(
                    f"{name} {', '.join(map(str, values))} does not fit {self.depth} channels",
                    fix=f"give one number, or {self.depth} in the order {self.channels}",
                )
        if min(self.std) <= 0:
            raise OptionError("std must be positive", fix="give the deviation of each channel")

    @property
    def depth(self) -> int:
        """The number of channels."""
        return 1 if self.channels == "gray" else 3

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample, without a batch axis."""
        return (self.depth, *self.size) if self.layout == "nchw" else (*self.size, self.depth)

    def absolute(self) -> Pictures:
        """The same for a process that works in another folder."""
        return replace(self, path=self.path.absolute())

    def files(self) -> list[Path]:
        """The pictures, in the order of their names."""
        if not self.path.is_dir():
            return [self.path]
        try:
            files = sorted(p for p in self.path.iterdir() if is_picture(p))
        except OSError as error:
            raise LoadError(
                f"folder '{self.path}' cannot be read ({error.strerror})",
                fix="check its permissions",
            ) from error
        if not files:
            raise LoadError(
                f"folder '{self.path}' contains no picture ({', '.join(sorted(SUFFIXES))})",
                fix="put pictures into it, not into folders within it",
            )
        return files

    def __iter__(self) -> Iterator[Array]:
        """The samples for an input of a float type."""
        for file in self.files():
            yield from PictureStack(file, self).pieces(None)


@dataclass(frozen=True)
class PictureStack:
    """One picture as an array that is read when it is needed (an `array_files.Stack`)."""

    file: Path
    pictures: Pictures
    integers: bool = False
    """Whether values are 0 to 255."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements."""
        return np.dtype(np.uint8 if self.integers else np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return self.pictures.shape

    def pieces(self, size: int | None) -> Iterator[Array]:
        """The whole picture: its first axis does not count samples."""
        assert size is None
        wanted = self.pictures
        pixels = _pixels(self.file, wanted)
        if wanted.channels == "bgr":
            pixels = pixels[..., ::-1]
        values: Array = pixels
        if not self.integers:
            values = (pixels / 255.0 - np.array(wanted.mean)) / np.array(wanted.std)
        if wanted.layout == "nchw":
            values = np.moveaxis(values, -1, 0)
        yield np.ascontiguousarray(values, self.dtype)


def is_picture(path: Path) -> bool:
    """Whether the name of a file is that of a picture."""
    return path.suffix.lower() in SUFFIXES


def _pixels(file: Path, wanted: Pictures) -> Array:
    """Pixels of the wanted size as uint8, channels last."""
    image = _pillow()
    try:
        regular_file.status(file)
        with image.open(file) as picture:
            if picture.mode.startswith(_DEEP):
                raise ValueError(f"its pixels have more than 8 bits ({picture.mode})")
            plain = picture.convert("L" if wanted.channels == "gray" else "RGB")
            height, width = wanted.size
            resized = plain.resize((width, height), image.Resampling.BILINEAR)
        return np.asarray(resized, np.uint8).reshape(height, width, wanted.depth)
    except LoadError as error:
        raise LoadError(f"'{file}': {error.what}", fix=error.fix) from error
    except (*_UNREADABLE, image.DecompressionBombError) as error:
        if file.suffix in (".npz", ".npy"):
            raise LoadError(
                f"'{file}' holds arrays, not a picture",
                fix="leave out the options for pictures, such as --image-size",
            ) from error
        raise LoadError(
            f"'{file}' cannot be read as a picture: {error}",
            fix="remove the file, or save it again as PNG or JPEG",
        ) from error


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise OptionError(
            "reading pictures needs Pillow, which is not installed", fix="pip install pillow"
        ) from error


__all__ = ["Channels", "Layout", "PictureStack", "Pictures", "is_picture"]
