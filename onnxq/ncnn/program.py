"""A network as ncnn stores it: a list of layers that read and write named blobs.

The .param file is text, one layer a line behind the magic number and the counts:

    7767517
    <layers> <blobs>
    <type> <name> <inputs> <outputs> <input blobs> <output blobs> <key>=<value> ...

A parameter that is a list of n integers has the key -23300 - key and the value n,<first>,...

The .bin file holds the weights of all layers in the same order, without names or sizes: which
arrays a layer has, and how large they are, follows from its type and its parameters. The first
array of a layer with weights begins with a tag of 4 bytes that tells its type (0: float32,
0x000D4B38: int8, padded to a multiple of 4 bytes); all others are plain float32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxq.errors import LoadError, SaveError
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparams import Array

MAGIC = "7767517"
INT8_TAG = 0x000D4B38
LONGEST_NAME = 255
"""ncnn reads names with %255s."""

Value = int | float | tuple[int, ...]
_LIST = 23300
"""Added to the key of a list, with a minus in front."""
_FIX = "give the .param and .bin files of one conversion, complete and unchanged"


@dataclass(frozen=True)
class Layer:
    """One line of the .param file with its share of the .bin file."""

    type: str
    name: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    params: Mapping[int, Value] = field(default_factory=dict)
    weights: tuple[Array, ...] = ()

    def integer(self, key: int, default: int | None = None) -> int:
        """A whole-number parameter."""
        value = self.params.get(key, default)
        if not isinstance(value, int):
            raise self.error(f"parameter {key} is {value}, not an integer")
        return value

    def number(self, key: int, default: float) -> float:
        """A number, rounded to float32 as ncnn holds it."""
        value = self.params.get(key, default)
        if isinstance(value, tuple):
            raise self.error(f"parameter {key} is a list, not a number")
        return float(np.float32(value))

    def integers(self, key: int) -> tuple[int, ...]:
        """A parameter that is a list of whole numbers."""
        value = self.params.get(key)
        if not isinstance(value, tuple):
            raise self.error(f"parameter {key} is {value}, not a list of integers")
        return value

    def error(self, why: str) -> LoadError:
        """The error for something wrong in this layer."""
        return LoadError(f"ncnn layer '{self.name}' ({self.type}): {why}", fix=_FIX)


def sizes(layer: Layer) -> list[int]:
    """How many elements each array of the layer has, the tagged one first where it has one."""
    count = layer.integer
    if layer.type in WITH_KERNEL:
        outputs, is_dense = count(0), layer.type == "InnerProduct"
        found = [count(2 if is_dense else 6)]
        found += [outputs] * bool(count(1 if is_dense else 5, 0))
        if count(8, 0):
            found += [count(7, 1) if layer.type == "ConvolutionDepthWise" else outputs, 1]
        return found
    if layer.type in ("Quantize", "PReLU"):
        return [count(0)]
    if layer.type == "BatchNorm":
        return [count(0)] * 4
    if layer.type in ("LayerNorm", "InstanceNorm"):
        return [count(0)] * 2 if count(2, 1) else []
    if layer.type == "MemoryData":
        return [math.prod(count(key, 0) or 1 for key in (0, 1, 11, 2))]
    return []


WITH_KERNEL = frozenset(
    {
        *("Convolution", "ConvolutionDepthWise", "Deconvolution", "DeconvolutionDepthWise"),
        "InnerProduct",
    }
)
"""Layers whose first array is tagged."""


# -- text -----------------------------------------------------------------------------------------


def write_param(layers: Iterable[Layer]) -> str:
    """The .param file."""
    lines = []
    blobs: set[str] = set()
    for layer in layers:
        for name in (layer.name, *layer.bottoms, *layer.tops):
            if not name or len(name.encode()) > LONGEST_NAME or name.split() != [name]:
                raise SaveError(
                    f"ncnn layer '{layer.name}': '{name}' cannot be a name in ncnn",
                    fix=f"rename it: no spaces, at most {LONGEST_NAME} bytes",
                )
        blobs.update(layer.tops)
        values = [_shown(key, value) for key, value in layer.params.items()]
        counts = [str(len(layer.bottoms)), str(len(layer.tops))]
        lines.append(
            " ".join([layer.type, layer.name, *counts, *layer.bottoms, *layer.tops, *values])
        )
    return "\n".join([MAGIC, f"{len(lines)} {len(blobs)}", *lines]) + "\n"


def _shown(key: int, value: Value) -> str:
    """A parameter as ncnn tells its type: a float has a point or an exponent."""
    if isinstance(value, tuple):
        return f"{-_LIST - key}={','.join(map(str, (len(value), *value)))}"
    return f"{key}={value}" if isinstance(value, int) else f"{key}={np.float32(value):.9e}"


def read_param(text: str) -> list[Layer]:
    """Inverse of `write_param`; the layers have no weights yet."""
    lines = text.split("\n")
    if lines[0].strip() != MAGIC:
        raise LoadError(f"not an ncnn .param file: its first line is not {MAGIC}", fix=_FIX)
    layers: list[Layer] = []
    made: set[str] = set()
    read: set[str] = set()
    for number, line in enumerate(lines[2:], 3):
        if not line.strip():
            continue
        layer = _layer(line.split(), Entry({}, f"line {number} of the .param file", _FIX))
        for blob in layer.bottoms:
            if blob not in made:
                raise layer.error(f"blob '{blob}' has no producer before it")
            if blob in read:
                raise layer.error(f"another layer reads blob '{blob}' too, without a Split")
            read.add(blob)
        for blob in layer.tops:
            if blob in made:
                raise layer.error(f"blob '{blob}' is made twice")
            made.add(blob)
        layers.append(layer)
    counts = lines[1].split() if len(lines) > 1 else []
    if counts != [str(len(layers)), str(len(made))]:
        raise LoadError(
            f"the .param file promises {' and '.join(counts) or 'no'} layers and blobs, but has "
            f"{len(layers)} and {len(made)}",
            fix=_FIX,
        )
    return layers


def _layer(words: list[str], line: Entry) -> Layer:
    if len(words) < 4:
        raise line.error("not a layer: it has no type, name and numbers of blobs")
    kind, name = words[:2]
    bottoms, tops = (line.whole_decimal("number of blobs", word) for word in words[2:4])
    ends = 4 + bottoms, 4 + bottoms + tops
    if bottoms < 0 or tops < 0 or len(words) < ends[1]:
        raise line.error("not a layer: names of blobs are missing")
    params: dict[int, Value] = {}
    for word in words[ends[1] :]:
        key, _, value = word.partition("=")
        number = line.whole_decimal("parameter", key)
        is_list = number <= -_LIST
        number = -_LIST - number if is_list else number
        if number in params:
            raise line.error(f"duplicate parameter {number}")
        params[number] = _list(line, value) if is_list else _value(line, value)
    return Layer(kind, name, tuple(words[4 : ends[0]]), tuple(words[ends[0] : ends[1]]), params)


def _list(line: Entry, text: str) -> tuple[int, ...]:
    """A list, which begins with its length."""
    count, *values = (_value(line, word) for word in text.split(","))
    found = tuple(v for v in values if isinstance(v, int))
    if len(found) != len(values) or count != len(found):
        raise line.error(f"'{text}' is not a number of integers and as many integers")
    return found


def _value(line: Entry, text: str) -> int | float:
    """A parameter, which ncnn holds in 32 bits."""
    if set(text) & set(".eE"):
        value = line.decimal("value", text)
        if abs(value) > float(np.finfo(np.float32).max):
            raise line.error(f"{text} does not fit a float32")
        return value
    whole = line.whole_decimal("value", text)
    if not -(2**31) <= whole < 2**31:
        raise line.error(f"{text} does not fit 32 bits")
    return whole


# -- bytes ----------------------------------------------------------------------------------------


def write_bin(layers: Iterable[Layer]) -> bytes:
    """The .bin file."""
    out = bytearray()
    for layer in layers:
        if [w.size for w in layer.weights] != sizes(layer):
            raise AssertionError(f"{layer.type} '{layer.name}' has other weights than it says")
        for index, weight in enumerate(layer.weights):
            if index == 0 and layer.type in WITH_KERNEL:
                out += struct.pack("<I", INT8_TAG if weight.dtype == np.int8 else 0)
            if weight.dtype == np.int8:
                out += weight.tobytes()
                out += bytes(-len(out) % 4)
                continue
            if not np.isfinite(weight).all():
                raise SaveError(
                    f"layer '{layer.name}' contains values that are not finite",
                    fix="repair the weights before converting",
                )
            out += weight.astype("<f4").tobytes()
    return bytes(out)


def read_bin(data: bytes, layers: Iterable[Layer]) -> list[Layer]:
    """The layers with their weights: inverse of `write_bin`."""
    at = 0
    found: list[Layer] = []
    for layer in layers:
        weights: list[Array] = []
        for index, size in enumerate(sizes(layer)):
            kind: np.dtype[np.generic] = np.dtype("<f4")
            if index == 0 and layer.type in WITH_KERNEL:
                (tag,) = struct.unpack("<I", _taken(layer, data, at, 4))
                at += 4
                if tag not in (0, INT8_TAG):
                    raise layer.error(
                        f"its weights have the tag {tag:#010x}, which is no known one"
                    )
                kind = np.dtype(np.int8) if tag else kind
            piece = _taken(layer, data, at, size * kind.itemsize)
            at += len(piece) + -len(piece) % 4
            weight = np.frombuffer(piece, kind)
            if not np.isfinite(weight).all():
                raise layer.error("its weights hold values that are not finite")
            weights.append(weight.astype(kind.newbyteorder("=")))
        found.append(
            Layer(layer.type, layer.name, layer.bottoms, layer.tops, layer.params, tuple(weights))
        )
    if at != len(data):
        raise LoadError(f"the .bin file has {len(data)} bytes, but the layers need {at}", fix=_FIX)
    return found


def _taken(layer: Layer, data: bytes, at: int, size: int) -> bytes:
    if size < 0 or at + size > len(data):
        raise layer.error(f"the .bin file ends at byte {len(data)}, within its weights")
    return data[at : at + size]
