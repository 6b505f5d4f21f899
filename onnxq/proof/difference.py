"""The difference of one tensor between two runs, gathered sample by sample.

Three units:

* steps: |a - b| / step, if the tensor has a quantization step. Both values are rounded floats,
  so a quotient within that rounding of a whole number counts as the whole number.
* relative: max |a - b| / max |a| over all samples, if a float tensor has no step.
* exact: |a - b| of integers, booleans and strings that are not codes. Any difference fails.

NaN and infinities must be at the same places with the same sign. Mismatches are counted; otherwise
such values are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np

from onnxq.errors import VerifyError
from onnxq.proof.step_size import StepSize
from onnxq.quant.qparams import Array
from onnxq.running.samples import is_float

Unit: TypeAlias = Literal["steps", "relative", "exact"]

_MOVED_STEPS = 0.5
_FINE_BITS = 12
"""Float sums of two kernels agree to some 1e-6 of the largest term: 16-bit grids resolve that."""
_MOVED_RELATIVE = 1e-6
# In types as coarse as bfloat16 rounding alone exceeds a step: never round away more than this.
_WIDEST_ROUNDING = 0.25
_NO_ENDS = math.inf, -math.inf
_PIECE = 1 << 16
"""Elements compared at a time: memory does not grow with the tensors, and caches hold them."""


@dataclass(frozen=True)
class Tolerance:
    """The largest differences that count as equal."""

    max_steps: float = 1.0
    max_moved: float = 0.01
    max_relative: float = 1e-3
    max_absolute: float = 1e-6
    """Float noise: a tensor without a step that differs by less agrees, however small it is."""
    max_mean_steps: float = math.inf
    """For outputs of which single elements may be far off, but not many."""
    max_mean_relative: float = math.inf
    max_single_relative: float = 0.0
    """What single elements of a tensor without a step may differ by, if that is more than
    `max_relative` and the average is still within it: a value before it that lies between two
    codes may become either."""
    max_fine_steps: float = 0.0
    """For grids of more than 12 bits: the largest difference, in steps of 8 bits, if that is more
    than `max_steps`; an eighth of it on average. They are so fine that they resolve the rounding
    of float sums, which differs with the order of summation (measured: 14 steps of 16 bits after
    12 folded layers). How many elements moved then says nothing."""
    max_mean_spread: float = math.inf
    """The mean as a share of the span of the trusted values. If it is limited, values that are all
    equal must be so in the trusted model, too."""
    min_sqnr: float = -math.inf
    """The least ratio of signal to difference, in dB."""
    max_labels: float = 0.0
    """The share of values that may differ where they are no real numbers."""
    max_unexplained: float = 0.05
    """If the outputs do not tell: what each kernel may be off before rounding, in steps of 8 bits;
    see `onnxq.proof.kernels`. Two graphs that mean the same differ by rounded float sums."""


@dataclass(frozen=True)
class TensorDiff:
    """The difference of one tensor over all samples."""

    name: str
    """The tensor in the trusted model."""
    other: str
    """The tensor in the other model."""
    op: str
    node: str
    """Its producer: type and name."""
    unit: Unit
    """The unit of `max` and `mean`."""
    step: float | None
    """The (largest) quantization step, if the unit is steps."""
    max: float
    mean: float
    moved: float
    """Share of elements that differ by half a step (relative: by 1e-6; exact: at all)."""
    count: int
    nonfinite: int
    """Number of places at which only one side has NaN or infinity."""
    finite: int
    """Number of elements that are finite on both sides."""
    size: float
    """Largest magnitude in the trusted model, to which a relative difference refers."""
    tolerance: Tolerance
    mean_spread: float = 0.0
    """Mean difference as a share of the span of the trusted model's values."""
    collapsed: bool = False
    """Whether all values of the other model are equal, and not those of the trusted one."""
    constant: bool = False
    """Whether all values of the trusted model are equal."""
    source_nan: int = 0
    """Number of places at which the trusted model has NaN."""
    sqnr: float = math.inf
    """Ratio of signal to difference: 10 log10(sum a^2 / sum (a - b)^2) dB; infinite if equal."""

    @property
    def severity(self) -> float:
        """The difference as a multiple of what is tolerated; above 1 it fails."""
        limits = self.tolerance
        if self.nonfinite:
            return math.inf
        if self.unit == "exact":
            return math.inf if self.moved > limits.max_labels else 0.0
        if self.sqnr < limits.min_sqnr:
            return 10 ** min((limits.min_sqnr - self.sqnr) / 20, 300.0)
        if self.collapsed and math.isfinite(limits.max_mean_spread):
            return math.inf
        if self.unit == "relative":
            if self.max * self.size <= limits.max_absolute:
                return 0.0
            single = limits.max_single_relative > limits.max_relative >= self.mean
            largest = limits.max_single_relative if single else limits.max_relative
            pairs = [(self.max, largest), (self.mean, limits.max_mean_relative)]
        else:
            pairs = [(self.max, limits.max_steps), (self.mean, limits.max_mean_steps)]
            pairs.append((self.moved, limits.max_moved))
        return max(_ratio(*pair) for pair in (*pairs, (self.mean_spread, limits.max_mean_spread)))

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.severity <= 1.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object; infinities and NaN become None."""
        fields = vars(self) | {"passed": self.passed}
        del fields["tolerance"]
        infinite = {k for k, v in fields.items() if isinstance(v, float) and not math.isfinite(v)}
        return fields | dict.fromkeys(infinite)


def _for_grid(limits: Tolerance, step: StepSize | None) -> Tolerance:
    """The limits for a tensor with this step."""
    if step is None or step.bits <= _FINE_BITS:
        return limits
    fine = limits.max_fine_steps * 2.0 ** (step.bits - 8)
    if fine <= limits.max_steps:
        return limits
    mean = min(limits.max_mean_steps, max(limits.max_steps, fine / 8))
    return replace(limits, max_steps=fine, max_moved=1.0, max_mean_steps=mean)


def _decibels(signal: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def _ratio(value: float, limit: float) -> float:
    return value / limit if limit else (math.inf if value else 0.0)


class RunningDiff:
    """The statistics of one tensor; memory does not grow with the samples."""

    def __init__(self, name: str, other: str, step: StepSize | None) -> None:
        self._name, self._other, self._step = name, other, step
        self._unit: Unit = "relative" if step is None else "steps"
        self._max = self._sum = self._plain_sum = 0.0
        self._signal = self._noise = 0.0
        self._ends_a = self._ends_b = _NO_ENDS
        self._count = self._finite = self._moved = self._nonfinite = self._source_nan = 0

    def add(self, a: Array, b: Array) -> None:
        """Add the two values of one sample."""
        kinds = _kind(a.dtype), _kind(b.dtype)
        if a.shape != b.shape or kinds[0] != kinds[1]:
            raise VerifyError(
                f"tensor '{self._name}' is {a.dtype}{list(a.shape)} in the first model, but "
                f"'{self._other}' is {b.dtype}{list(b.shape)} in the second",
                fix="compare models that return the same shapes and kinds of values",
            )
        self._count += a.size
        if not a.size:
            return
        if kinds[0] == "float":
            self._add_floats(a, b)
        else:
            self._add_others(a, b, numeric=kinds[0] != "string")

    def _add_floats(self, a: Array, b: Array) -> None:
        eps = max(_epsilon(t.dtype) for t in (a, b))
        step = np.ones(()) if self._step is None else self._step.along(a.shape)
        ends = _NO_ENDS
        for x, y, _ in _pieces(a, b, step):
            finite = np.isfinite(x) & np.isfinite(y)
            if not finite.all():
                agree = finite | (x == y) | (np.isnan(x) & np.isnan(y))
                self._nonfinite += int(x.size - np.count_nonzero(agree))
                self._source_nan += int(np.count_nonzero(np.isnan(x)))
                x, y = x[finite], y[finite]
            self._finite += x.size
            ends = _widened(ends, x)
            self._ends_b = _widened(self._ends_b, y)
        self._ends_a = min(self._ends_a[0], ends[0]), max(self._ends_a[1], ends[1])
        threshold = _MOVED_RELATIVE * _largest(ends)
        for x, y, unit in _pieces(a, b, step):
            finite = np.isfinite(x) & np.isfinite(y)
            if not finite.all():
                x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
            delta = np.abs(x - y)
            self._plain_sum += float(delta.sum())
            self._signal += float(np.dot(x, x))
            self._noise += float(np.dot(delta, delta))
            if self._step is None:
                moved = delta > threshold
            elif delta.any():
                delta /= unit
                size = np.maximum(np.abs(x), np.abs(y))
                rounding = np.minimum(eps * size / unit, _WIDEST_ROUNDING)
                whole = np.rint(delta)
                delta = np.where(np.abs(delta - whole) <= rounding, whole, delta)
                moved = delta >= _MOVED_STEPS
            else:
                continue  # equal values, as most are, take no part in any sum
            self._gather(delta, moved)

    def _add_others(self, a: Array, b: Array, numeric: bool) -> None:
        if self._step is None:
            self._unit = "exact"
        self._finite += a.size
        for start in range(0, a.size, _PIECE):
            x, y = (values.reshape(-1)[start : start + _PIECE] for values in (a, b))
            # In the type of the values: float64 is only for the size of a difference.
            moved = np.asarray(x != y)
            delta = moved.astype(np.float64)
            if numeric:
                delta = np.abs(x.astype(np.float64) - y.astype(np.float64))
            self._gather(delta, moved)

    def _gather(self, delta: Array, moved: Array) -> None:
        self._max = max(self._max, float(delta.max()))
        self._sum += float(delta.sum())
        self._moved += int(np.count_nonzero(moved))

    def result(self, op: str, node: str, tolerance: Tolerance) -> TensorDiff:
        """The difference over all samples added so far."""
        # The size of a trusted tensor of zeros is that of the other one.
        sizes = _largest(self._ends_a), _largest(self._ends_b)
        size = (sizes[0] or sizes[1] or 1.0) if self._unit == "relative" else 1.0
        span_a, span_b = (max(0.0, high - low) for low, high in (self._ends_a, self._ends_b))
        return TensorDiff(
            name=self._name,
            other=self._other,
            op=op,
            node=node,
            unit=self._unit,
            step=self._step.largest if self._step is not None else None,
            max=self._max / size,
            mean=self._sum / size / self._finite if self._finite else 0.0,
            moved=self._moved / self._count if self._count else 0.0,
            count=self._count,
            nonfinite=self._nonfinite,
            finite=self._finite,
            size=size,
            tolerance=_for_grid(tolerance, self._step),
            mean_spread=self._plain_sum / self._finite / span_a if span_a else 0.0,
            collapsed=span_a > 0 and not span_b,
            constant=self._finite > 1 and self._ends_a[0] == self._ends_a[1],
            source_nan=self._source_nan,
            sqnr=_decibels(self._signal, self._noise),
        )


def _pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Arrays of one shape, or that broadcast to it, as float64 in pieces: never as a whole."""
    walk = np.nditer(
        [*arrays],
        ["external_loop", "buffered", "zerosize_ok"],
        [["readonly"] for _ in arrays],
        [np.float64 for _ in arrays],
        "C",
        "unsafe",
        buffersize=_PIECE,
    )
    with walk:
        for found in walk:
            yield tuple(found)


def _widened(ends: tuple[float, float], values: Array) -> tuple[float, float]:
    """`ends` (lowest and highest value), widened to contain `values`."""
    low, high = ends
    return (
        min(low, float(values.min(initial=math.inf))),
        max(high, float(values.max(initial=-math.inf))),
    )


def _largest(ends: tuple[float, float]) -> float:
    """The largest magnitude between two ends; 0 if there is no value."""
    return 0.0 if ends == _NO_ENDS else max(map(abs, ends))


def _epsilon(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def _kind(dtype: np.dtype[Any]) -> str:
    if is_float(dtype):
        return "float"
    if dtype.kind == "b":
        return "bool"
    return "string" if dtype.kind in "OUT" else "integer"
