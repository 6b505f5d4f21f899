"""The grids that a quantization chose, with what the values they were chosen for look like.

Runtimes add in different orders, so the same network computes on the same data values that differ
in their last bits. Ranges then differ as well: by a few floats, or by more if a method finds two
ranges equally good. Hence a recipe records its grids, and whoever calibrates by the recipe takes a
recorded one for a tensor if the values are the same except for rounding. The `Look` of a tensor
tells that, without its name, which is another one in every exporter:

    count       the number of samples; of a weight, of its values
    extremes    of all values, and the averages of the samples' extremes; of a weight, the channels'
    averages    of x and of |x|, if more than the extremes decides the range

Two looks agree if the counts are equal, no extreme is off by more than 2^-13 of the largest
magnitude (a 64th of a step of int8), and no average by more than that and 2^-7 of the average |x|:
averages are those of histograms, where a value next to the edge of a bin may be counted as one that
is larger by 2^-7. Other data look different, and give their own ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.observing.range_methods import Method
from onnxq.observing.tensor_statistics import TensorStatistics
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparams import Array, QParams
from onnxq.quant.scheme import QSpec

SAME = 2.0**-13
"""Differences up to this share of the largest magnitude are rounding."""
_BIN = 2.0**-7
"""The relative width of a bin of a histogram."""


@dataclass(frozen=True)
class Look:
    """What tells the values of a tensor from those of others."""

    count: int
    extremes: tuple[float, ...]
    averages: tuple[float, ...] = ()

    @classmethod
    def of_activation(cls, stats: TensorStatistics, method: Method) -> Look:
        """That of a tensor that was observed, for ranges by `method`."""
        seen = stats.histogram
        ends = _short(float(seen.low), float(seen.high), *stats.extremes.mean())
        if not method.needs_distribution:
            return cls(stats.extremes.count, ends)
        lower, upper, counts = seen.bins()
        middle, weight = (lower + upper) / 2, counts / max(counts.sum(), 1)
        averages = _short(middle @ weight, np.abs(middle) @ weight)
        return cls(stats.extremes.count, ends, averages)

    @classmethod
    def of_weight(cls, values: Array, axis: int | None) -> Look:
        """That of a weight with channels along `axis`."""
        rows = values.reshape(1, -1) if axis is None else np.moveaxis(values, axis, 0)
        rows = rows.reshape(len(rows), -1)
        low, high = rows.min(axis=1), rows.max(axis=1)
        ends = (low.min(), high.max(), low.mean(dtype=np.float64), high.mean(dtype=np.float64))
        averages = (rows.mean(dtype=np.float64), np.abs(rows).mean(dtype=np.float64))
        return cls(values.size, _short(*ends), _short(*averages))

    def agrees(self, other: Look) -> bool:
        """Whether the values are the same, except for rounding."""
        if self.count != other.count or len(self.averages) != len(other.averages):
            return False
        limit = SAME * max(map(abs, self.extremes))
        if _off(self.extremes, other.extremes) > limit:
            return False
        limit += _BIN * max(map(abs, self.averages), default=0.0)
        return _off(self.averages, other.averages) <= limit


def _off(one: tuple[float, ...], two: tuple[float, ...]) -> float:
    return max((abs(a - b) for a, b in zip(one, two, strict=True)), default=0.0)


def _short(*numbers: float | Array) -> tuple[float, ...]:
    """With so many digits that the comparison does not suffer."""
    return tuple(float(f"{float(x):.7g}") for x in numbers)


@dataclass(frozen=True)
class RecordedGrid:
    """One grid, and what it is for."""

    tensor: str
    """The name in the ONNX file, for readers."""
    method: str
    """How the range was chosen."""
    codes: str
    """The kind of grid, see `codes_of`."""
    look: Look
    scale: tuple[float, ...]
    """One per channel, as float32 prints it."""
    zero_point: tuple[int, ...]
    """Empty: all are 0."""

    @classmethod
    def of(cls, row: QParams, spec: QSpec, method: str, look: Look) -> RecordedGrid:
        """From a quantizer of `spec`."""
        scale = tuple(float(str(x)) for x in np.ravel(row.scale).astype(np.float32))
        zeros = tuple(map(int, np.ravel(row.zero_point))) if np.any(row.zero_point) else ()
        return cls(row.tensor, method, codes_of(spec), look, scale, zeros)

    def ends(self, spec: QSpec, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """The range of the grid, in float64; `onnxq.quant.grid_of_range` gives the grid of it."""
        lo, hi = spec.range
        scale = np.array(self.scale, np.float32).astype(np.float64).reshape(shape)
        zero = np.array(self.zero_point or 0, np.float64)
        zero = zero.reshape(shape) if self.zero_point else zero
        return (lo - zero) * scale, (hi - zero) * scale

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        made: dict[str, Any] = {
            "tensor": self.tensor,
            "method": self.method,
            "codes": self.codes,
            "count": self.look.count,
            "extremes": list(self.look.extremes),
            "averages": list(self.look.averages),
            "scale": list(self.scale),
        }
        made["zero_point"] = list(self.zero_point)
        return {key: value for key, value in made.items() if value != []}

    @classmethod
    def from_json(cls, entry: Entry) -> RecordedGrid:
        """From the object that `to_json` makes."""
        entry.only(
            ("tensor", "method", "codes", "count", "extremes", "scale"), ("averages", "zero_point")
        )
        scale, extremes = tuple(entry.numbers("scale")), tuple(entry.numbers("extremes"))
        averages = tuple(entry.numbers("averages")) if "averages" in entry.value else ()
        zeros = tuple(entry.integers("zero_point")) if "zero_point" in entry.value else ()
        if not np.all(np.array(scale, np.float32) > 0) or len(zeros) not in (0, len(scale)):
            raise entry.error("scales must be positive, with one zero point for each, or none")
        if len(extremes) != 4 or len(averages) not in (0, 2):
            raise entry.error("there must be four extremes, and two averages or none")
        tensor, method, codes = (entry.text(key) for key in ("tensor", "method", "codes"))
        look = Look(entry.integer("count"), extremes, averages)
        return cls(tensor, method, codes, look, scale, zeros)


def codes_of(spec: QSpec) -> str:
    """The kind of grids within `spec`: those of another kind do not replace each other."""
    lo, hi = spec.range
    kinds = {" symmetric": spec.symmetric, " power-of-two": spec.power_of_two}
    return f"{lo}..{hi}" + "".join(text for text, holds in kinds.items() if holds)


class GridRecord:
    """The grids of a recipe, to be found by what values look like."""

    def __init__(self, grids: Iterable[RecordedGrid] = ()) -> None:
        self._grids: dict[tuple[str, str, int], list[RecordedGrid]] = {}
        for each in grids:
            key = (each.method, each.codes, each.look.count)
            self._grids.setdefault(key, []).append(each)

    def __bool__(self) -> bool:
        """Whether there is any grid."""
        return bool(self._grids)

    def find(
        self, look: Look, spec: QSpec, method: str, own: tuple[Array, Array]
    ) -> tuple[Array, Array] | None:
        """The range recorded for values of this look; None if there is none.

        Of several it is the one nearest to `own`, the range of the values by the method.
        """
        shape = own[0].shape
        found = [each.ends(spec, shape) for each in self._matching(look, spec, method, own[0].size)]
        return min(found, key=lambda ends: _distance(ends, own), default=None)

    def _matching(self, look: Look, spec: QSpec, method: str, size: int) -> Iterator[RecordedGrid]:
        for each in self._grids.get((method, codes_of(spec), look.count), ()):
            if len(each.scale) == size and each.look.agrees(look):
                yield each


def _distance(one: tuple[Array, Array], two: tuple[Array, Array]) -> float:
    return float(max(np.abs(a - b).max(initial=0.0) for a, b in zip(one, two, strict=True)))


__all__ = ["GridRecord", "Look", "RecordedGrid", "codes_of"]
