"""Inputs for a model, one sample at a time: the user's data, or seeded random values.

Data comes in records (see `onnxq.running.records`). `data` is one record, a folder of them (taken
in the order of their names), `Pictures` or any iterable of them. One rule turns a record into
samples. For an input of rank r whose first dimension in the model is b, an array of rank

* r + 1: its first axis counts samples;
* r, b a number: split into pieces of b along the first axis;
* r, b unknown: split into single items along the first axis (r = 1: not split);
* r - 1, b unknown or 1: one sample without its batch axis, which is added.

Inputs with one sample are repeated for the others; any other difference in number is an error.
Values are converted only if that does not change them, or between float types. A file is read
piece by piece: memory holds one sample, not the data set.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from onnxq.arrays.array_files import Stack
from onnxq.errors import LoadError, OnnxqError, VerifyError
from onnxq.quant.qparams import Array
from onnxq.running.ort_tensors import TensorSpec, is_size
from onnxq.running.records import Data as Data
from onnxq.running.records import files_of as files_of
from onnxq.running.records import matches, records
from onnxq.running.sessions import Session

Feed: TypeAlias = dict[str, Array]

LADDER = (8, 16, 32, 64, 128, 224)
"""Sizes tried, in this order, for a dimension the model leaves open."""

ENOUGH_VALUES = 1 << 20
"""If the first size makes a sample larger than this, because other dimensions are large, smaller
sizes are tried first."""

MOST_VALUES = 1 << 26
"""Sizes that make a sample larger than this are not tried, except the smallest."""

LARGEST_RANDOM = 1 << 27
"""Most random values of one input: 1 GiB. Fixed dimensions may be of any size."""
UNNAMED = "arr_0"
"""The name that numpy gives to the one array of an .npz file that was saved without names."""


def samples(
    model: Session | Sequence[TensorSpec],
    data: Data = None,
    count: int = 4,
    seed: int = 0,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> Iterator[Feed]:
    """Feeds for a session or for given inputs: all of `data`, or `count` random ones.

    Random values of an input lie in its range among `ranges` (see `random_feed`).
    """
    inputs = tuple(model.inputs if isinstance(model, Session) else model)
    if data is None:
        filled = fill_dims(model, seed) if isinstance(model, Session) else _filled(inputs, 1, 8)
        for index in range(count):
            yield random_feed(filled, seed, index, ranges)
        return
    for sample in given_samples(inputs, data):
        yield sample.feed


class Sample(NamedTuple):
    """One sample of the data."""

    number: int
    """Counted from 0 over all data."""
    where: str
    """The file it comes from, in words."""
    feed: Feed


def given_samples(
    inputs: Sequence[TensorSpec],
    data: Data,
    *,
    first: int = 0,
    every: int = 1,
    most: int | None = None,
) -> Iterator[Sample]:
    """Every `every`-th sample from number `first` on, among the first `most` of the data.

    A record without a sample of these numbers is checked, but its values are not read.
    """
    number = 0
    for where, record in records(data, inputs):
        count, feeds = _feeds(where, record, inputs)
        end = number + count if most is None else min(number + count, most)
        # The least number that is not before this record.
        if first + every * max(0, -((first - number) // every)) < end:
            for at, feed in zip(range(number, end), feeds, strict=False):
                if at >= first and (at - first) % every == 0:
                    yield Sample(at, where, feed)
        number += count
        if most is not None and number >= most:
            break
    if not number:
        raise LoadError("the data contains no samples", fix="give at least one sample")


def random_feed(
    inputs: Iterable[TensorSpec],
    seed: int = 0,
    index: int = 0,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> Feed:
    """Sample `index` of a seeded series, the same whatever the number of samples.

    Floats are N(0, 1). If the input has a range, they are normal around its middle, with a sixth of
    its width as deviation, and clipped to it. 32- and 64-bit integers are 0 or 1, valid as indices
    of nearly any table; 8- and 16-bit integers, which are seldom indices, span 0 to 255 (or the
    type's maximum).
    """
    rng = np.random.default_rng([seed, index])
    feed: Feed = {}
    for spec in inputs:
        if spec.dtype is None or spec.dtype.kind in "OUT":
            raise VerifyError(
                f"cannot make random values for input '{spec.name}' ({spec.type})",
                fix="give values for the inputs with --data",
            )
        shape = tuple(d for d in spec.shape if isinstance(d, int))
        if math.prod(shape) > LARGEST_RANDOM:
            raise VerifyError(
                f"input '{spec.name}' ({spec}) has {math.prod(shape)} elements; the limit for "
                f"random values is {LARGEST_RANDOM}",
                fix="give values for the inputs with --data, or skip the proof with --no-verify",
            )
        if is_float(spec.dtype):
            values = rng.standard_normal(shape)
            if ranges and spec.name in ranges:
                values = _within(values, *ranges[spec.name], spec.dtype)
            feed[spec.name] = values.astype(spec.dtype)
        else:
            high = _highest_random(spec.dtype)
            feed[spec.name] = rng.integers(0, high, shape, endpoint=True).astype(spec.dtype)
    return feed


def _within(normal: Array, low: float, high: float, dtype: np.dtype[Any]) -> Array:
    largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    low, high = max(low, -largest), min(high, largest)
    spread = (high - low) / 6
    normal *= spread
    normal += low + 3 * spread
    return np.clip(normal, low, high, out=normal)


def _highest_random(dtype: np.dtype[Any]) -> int:
    if dtype.itemsize > 2 or dtype.kind == "b":
        return 1
    names = {"int2": 1, "uint2": 3, "int4": 7, "uint4": 15, "int8": 127}
    return names.get(dtype.name, 255)


def fill_dims(session: Session, seed: int = 0) -> tuple[TensorSpec, ...]:
    """The session's inputs with every open dimension given a size the model runs with.

    An open first dimension of a tensor with two or more is the batch: 1. All others get the first
    size of `LADDER` that works, or a smaller one if the fixed dimensions are large already; a
    symbol has one size throughout (of those that are also on other axes, only the first
    dimension of the first input is a batch). If none works, the batch gets the size of the others
    too. A size that makes empty tensors or NaN, as a pooling larger than its input does, is used
    only if there is no better one.
    """
    if all(is_size(d) for i in session.inputs for d in i.shape):
        return session.inputs
    tried = list(dict.fromkeys(_filled(session.inputs, *rung) for rung in _rungs(session.inputs)))
    tried = [filled for filled in tried if _values(filled) <= MOST_VALUES] or tried[:1]
    poor: tuple[TensorSpec, ...] | None = None
    first: OnnxqError | None = None
    for filled in tried:
        feed = random_feed(filled, seed)
        try:
            values = session.run(feed)
        except VerifyError as error:
            first = first or error
            continue
        if all(map(_is_meaningful, values.values())):
            return filled
        poor = poor or filled
    if poor is not None:
        return poor
    shapes = ", ".join(f"'{i.name}' {i}" for i in session.inputs)
    raise VerifyError(
        f"found no input sizes with which the model runs; its inputs are {shapes}. Error with "
        f"the smallest sizes: {first.what if first else ''}",
        fix="give real inputs with --data",
    )


def _rungs(inputs: Sequence[TensorSpec]) -> list[tuple[int, int]]:
    """Sizes of the batch and of other open dimensions, in the order they are tried."""
    small = LADDER[0]
    while small > 1 and _values(_filled(inputs, 1, small)) > ENOUGH_VALUES:
        small //= 2
    sizes = list(dict.fromkeys((small, *LADDER)))
    return [(1, size) for size in sizes] + [(size, size) for size in sizes]


def _values(inputs: Iterable[TensorSpec]) -> int:
    """The number of values in a sample."""
    return sum(math.prod(d for d in i.shape if isinstance(d, int)) for i in inputs)


def _is_meaningful(value: Array) -> bool:
    return value.size > 0 and not (is_float(value.dtype) and bool(np.isnan(value).any()))


def _filled(inputs: Iterable[TensorSpec], batch: int, size: int) -> tuple[TensorSpec, ...]:
    inputs = tuple(inputs)
    leading = [i.shape[0] for i in inputs if len(i.shape) > 1]
    elsewhere = {d for i in inputs for d in i.shape[1:]}
    symbols = {d for d in leading if isinstance(d, str)} - (elsewhere - set(leading[:1]))

    def sized(spec: TensorSpec, axis: int) -> int:
        dim = spec.shape[axis]
        if isinstance(dim, int) and dim >= 0:
            return dim
        is_batch = dim in symbols or (dim is None and axis == 0 and len(spec.shape) > 1)
        return batch if is_batch else size

    return tuple(
        dataclasses.replace(i, shape=tuple(sized(i, axis) for axis in range(len(i.shape))))
        for i in inputs
    )


def _feeds(
    where: str, record: Mapping[str, Stack], inputs: Sequence[TensorSpec]
) -> tuple[int, Iterator[Feed]]:
    """The number of samples in a record, and the samples."""
    counts: dict[str, int] = {}
    parts: dict[str, Iterator[Array]] = {}
    for spec in inputs:
        stack = record.get(spec.name)
        if stack is None and len(inputs) == 1 and list(record) == [UNNAMED]:
            stack = record[UNNAMED]
        if stack is None:
            listed = ", ".join(record) or "none"
            raise LoadError(
                f"{where}: no array for input '{spec.name}' (found: {listed})",
                fix="name the arrays after the model's inputs",
            )
        counts[spec.name], parts[spec.name] = _split(where, spec, stack)
    total = max(counts.values(), default=0)
    if any(n not in (1, total) for n in counts.values()):
        listed = ", ".join(f"'{name}' {n}" for name, n in counts.items())
        raise LoadError(
            f"{where}: the inputs have different numbers of samples: {listed}",
            fix="give every array a first axis that counts samples, of the same length",
        )

    def feeds() -> Iterator[Feed]:
        streams = {
            name: itertools.repeat(next(part), total) if counts[name] == 1 else part
            for name, part in parts.items()
            if total
        }
        for _ in range(total):
            yield {spec.name: cast(where, spec, next(streams[spec.name])) for spec in inputs}

    return total, feeds()


def _split(where: str, spec: TensorSpec, stack: Stack) -> tuple[int, Iterator[Array]]:
    """The number of samples in `stack` for this input, and the samples."""
    if not _may_become(stack.dtype, spec.dtype):
        raise LoadError(
            f"{where}: the {stack.dtype} array for input '{spec.name}' cannot be "
            f"converted to {spec.dtype}",
            fix=f"save it as {spec.dtype}",
        )
    rank, given = len(spec.shape), stack.shape
    if rank == 0:  # a scalar, or a tensor of unknown rank: taken as it is
        return 1, stack.pieces(None)
    batch = spec.shape[0] if is_size(spec.shape[0]) else None
    if len(given) == rank + 1 and matches(given[1:], spec.shape):
        return given[0], (piece[0] for piece in stack.pieces(1))
    if len(given) == rank - 1 and batch in (None, 1) and matches(given, spec.shape[1:]):
        return 1, (piece[None] for piece in stack.pieces(None))
    if len(given) == rank and matches(given[1:], spec.shape[1:]):
        if given[0] == batch or (batch is None and rank == 1):
            return 1, stack.pieces(None)
        size = 1 if batch is None else int(batch)
        if size and given[0] % size == 0:
            return given[0] // size, stack.pieces(size)
    raise LoadError(
        f"{where}: the array for input '{spec.name}' has shape {list(given)}, "
        f"but the input is {spec}",
        fix=_shape_advice(given, spec),
    )


def _shape_advice(given: Sequence[int], spec: TensorSpec) -> str:
    """How to give arrays of the right shape; those with the channels elsewhere are transposed."""
    wanted = spec.shape[1:]
    front = len(given) - len(wanted)
    if len(wanted) > 1 and 0 <= front <= 2:
        own = tuple(given[front:])
        if matches((own[-1], *own[:-1]), wanted):
            return f"the last axis belongs in front: give numpy.moveaxis(x, -1, {front})"
        if matches((*own[1:], own[0]), wanted):
            return f"axis {front} belongs at the end: give numpy.moveaxis(x, {front}, -1)"
    if len(spec.shape) > 1 and not is_size(spec.shape[0]):
        return "give the shape of the input, whose first axis may count any number of samples"
    return "give the shape of the input, with one more leading axis for several samples"


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether values of this type are real numbers; the types of ml_dtypes included."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _may_become(given: np.dtype[Any], wanted: np.dtype[Any] | None) -> bool:
    """Whether the other type can represent some values of the given one: `cast` checks each."""
    if wanted is None or given == wanted:
        return True
    if wanted.kind == "O":
        return given.kind in "UTO"
    if given.kind == "V" and not is_float(given):
        return given.itemsize == wanted.itemsize
    return given.kind in "biu" or (is_float(given) and is_float(wanted))


def cast(where: str, spec: TensorSpec, array: Array) -> Array:
    """The sample in the input's type; raises if that would change its values."""
    wanted = spec.dtype
    if wanted is None or array.dtype == wanted or (wanted.kind == "O" and array.dtype.kind in "UT"):
        return array
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        return array.view(wanted)  # bfloat16 and others: .npy files lose the name of the type
    if array.dtype.kind in "biuf" or is_float(array.dtype):
        with np.errstate(over="ignore", invalid="ignore"):
            made = array.astype(wanted)
        if is_float(array.dtype) and is_float(wanted):
            if bool(np.all(np.isfinite(made) == np.isfinite(array))):
                return made
        elif not is_float(array.dtype) and _same_integers(array, made):
            return made
    raise LoadError(
        f"{where}: the {array.dtype} array for input '{spec.name}' cannot be converted to "
        f"{wanted} without changing its values ({array.size} elements)",
        fix=f"save it as {wanted}",
    )


def _same_integers(array: Array, made: Array) -> bool:
    # -1 becomes 255 in uint8 and comes back as -1: only the signs differ.
    back = made.astype(array.dtype)
    return bool(np.all((back == array) & ((made < 0) == (array < 0))))
