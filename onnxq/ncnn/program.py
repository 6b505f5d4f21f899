"""A network as ncnn stores it: a list of layers that read and write named blobs.

The .param file is text, one layer a line after the magic number and the counts:

    7767517
    <layers> <blobs>
    <type> <name> <inputs> <outputs> <input blobs> <output blobs> <key>=<value> ...

The .bin file contains the weights of all layers in the same order, without names or sizes: the
type and the parameters of a layer determine its arrays and their sizes. The first array of a layer
with a kernel begins with a tag of 4 bytes that specifies its type (0: float32, 0x000D4B38: int8,
padded to a multiple of 4 bytes); all others are plain float32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from onnxq.errors import LoadError, SaveError
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparams import Array

MAGIC = "7767517"
INT8_TAG = 0x000D4B38
LONGEST_NAME = 255
"""ncnn reads names with %255s."""

ARITHMETIC = {"Add": (0, 0), "Sub": (1, 7), "Mul": (2, 2), "Div": (3, 8)}
"""BinaryOp's numbers for a op b and for b op a, by ONNX operator."""
ORDERS = {(0, 1, 2): 0, (0, 2, 1): 1, (1, 0, 2): 2, (1, 2, 0): 3, (2, 0, 1): 4, (2, 1, 0): 5}
"""Permute's numbers for the three axes (c, h, w) in the order of the output."""

Value = int | float
_FIX = "give the .param and .bin files of one conversion, complete and unchanged"


@dataclass(frozen=True)
class Layer:
    """One line of the .param file with its weights from the .bin file."""

    type: str
    name: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    params: Mapping[int, Value] = field(default_factory=dict)
    weights: tuple[Array, ...] = ()

    def integer(self, key: int, default: int | None = None) -> int:
        """An integer parameter."""
        value = self.params.get(key, default)
        if not isinstance(value, int):
            raise self.error(f"parameter {key} is {value}, not an integer")
        return value

    def number(self, key: int, default: float) -> float:
        """A parameter, rounded to float32 as ncnn stores it."""
        return float(np.float32(self.params.get(key, default)))

    def error(self, why: str) -> LoadError:
        """The error for something wrong in this layer."""
        return LoadError(f"ncnn layer '{self.name}' ({self.type}): {why}", fix=_FIX)


def sizes(layer: Layer) -> list[int]:
    """The number of elements of each array of the layer, the tagged one first."""
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
    if layer.type == "LayerNorm":
        return [count(0)] * 2 if count(2, 1) else []
    if layer.type == "MemoryData":
        return [math.prod(count(key, 0) or 1 for key in (0, 1, 2))]
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
        values = [f"{key}={_shown(value)}" for key, value in layer.params.items()]
        counts = [str(len(layer.bottoms)), str(len(layer.tops))]
        lines.append(
            " ".join([layer.type, layer.name, *counts, *layer.bottoms, *layer.tops, *values])
        )
    return "\n".join([MAGIC, f"{len(lines)} {len(blobs)}", *lines]) + "\n"


def _shown(value: Value) -> str:
    """A number as ncnn recognises its type: a float has a point or an exponent."""
    return str(value) if isinstance(value, int) else f"{np.float32(value):.9e}"


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
                raise layer.error(f"another layer also reads blob '{blob}', without a Split")
            read.add(blob)
        for blob in layer.tops:
            if blob in made:
                raise layer.error(f"blob '{blob}' has two producers")
            made.add(blob)
        layers.append(layer)
    counts = lines[1].split() if len(lines) > 1 else []
    if counts != [str(len(layers)), str(len(made))]:
        raise LoadError(
            f"the .param file declares {' and '.join(counts) or 'no'} layers and blobs, but "
            f"contains {len(layers)} and {len(made)}",
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
        if number in params:
            raise line.error(f"duplicate parameter {number}")
        params[number] = _value(line, value)
    return Layer(kind, name, tuple(words[4 : ends[0]]), tuple(words[ends[0] : ends[1]]), params)


def _value(line: Entry, text: str) -> Value:
    """A parameter, which ncnn stores in 32 bits."""
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
            raise AssertionError(f"{layer.type} '{layer.name}': weights and parameters differ")
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
                    raise layer.error(f"its weights have the unknown tag {tag:#010x}")
                kind = np.dtype(np.int8) if tag else kind
            piece = _taken(layer, data, at, size * kind.itemsize)
            at += len(piece) + -len(piece) % 4
            weight = np.frombuffer(piece, kind)
            if not np.isfinite(weight).all():
                raise layer.error("its weights contain values that are not finite")
            weights.append(weight.astype(kind.newbyteorder("=")))
        found.append(replace(layer, weights=tuple(weights)))
    if at != len(data):
        raise LoadError(f"the .bin file has {len(data)} bytes, but the layers need {at}", fix=_FIX)
    return found


def _taken(layer: Layer, data: bytes, at: int, size: int) -> bytes:
    if size < 0 or at + size > len(data):
        raise layer.error(f"the .bin file ends at byte {len(data)}, within its weights")
    return data[at : at + size]
