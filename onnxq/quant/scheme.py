"""The scheme of a target: types, symmetry and granularity of weights, activations and biases.

A `Scheme` is data. The same value selects the quantizers of training, is checked by conversion, and
is printed by `onnxq backends NAME`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from onnxq.errors import OptionError
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import QTYPES, QType, holding, qtype


@dataclass(frozen=True)
class QSpec:
    """The quantizers a target accepts for one kind of tensor."""

    types: tuple[str, ...]
    """Type names, the preferred one first."""
    symmetric: bool = False
    """Whether the zero point must be 0."""
    per_channel: bool = False
    """Whether there may be one scale per output channel."""
    blocks: bool = False
    """Whether there may be one scale per block."""
    block: int = 0
    """Elements per block along the sums of a matrix product, as `onnxq quantize` makes them; 0: no
    blocks."""
    full_range: bool = False
    """Whether all of lo..hi are used (of another type: all its codes): the target clamps there."""
    lo: int | None = None
    """Lowest code used in training; None: the lowest of the preferred type."""
    hi: int | None = None
    """Highest code used in training; None: the highest of the preferred type."""
    power_of_two: bool = False
    """Whether scales must be powers of two, since the target shifts instead of multiplying."""
    algorithm: str = "lsq"
    """The algorithm in training: a name in torch_bridge.fake_quant."""
    observer: str = "minmax"
    """The observer that finds the first scales: a name in torch_bridge.observers."""
    train_symmetric: bool | None = None
    """Whether training keeps zero points at 0; None: if `symmetric` requires it."""
    algorithm_is_grid: bool = False
    """Whether the target computes on the grid of `algorithm`, so that no other can train for it."""
    asymmetric: tuple[str, ...] = ()
    """Types that may have any zero point though others may not, if there is one scale."""

    def __post_init__(self) -> None:
        """Reject a range that does not fit the preferred type."""
        if not isinstance(self.types, tuple) or not self.types:
            one = self.types if isinstance(self.types, str) else "int8"
            raise OptionError(f"QSpec: types={self.types!r}", fix=f'give a tuple: ("{one}",)')
        kind = self.qtype
        lo, hi = self.range
        if not kind.lo <= lo < hi <= kind.hi:
            raise OptionError(
                f"range {lo}..{hi} does not fit {kind} ({kind.lo}..{kind.hi})",
                fix="choose lo and hi inside of it, the lower one first",
            )

    @property
    def logarithmic(self) -> bool:
        """Whether the target has the grid of `onnxq.canonical.fake_quantize_log`, and no other."""
        return self.algorithm_is_grid and self.algorithm == "nnie"

    @property
    def qtype(self) -> QType:
        """The preferred type: the one trained with."""
        return qtype(self.types[0])

    @property
    def range(self) -> tuple[int, int]:
        """Lowest and highest code used in training."""
        kind = self.qtype
        return kind.lo if self.lo is None else self.lo, kind.hi if self.hi is None else self.hi

    def codes(self, kind: QType) -> tuple[int, int]:
        """Lowest and highest code of a type: those used in training for the preferred one."""
        return self.range if kind == self.qtype else (kind.lo, kind.hi)

    @property
    def bits(self) -> int:
        """Bits that the codes used in training need."""
        lo, hi = self.range
        return (hi - lo).bit_length()

    def trained(self) -> QSpec:
        """The rules of training: `symmetric` says how it is done, not what is required."""
        if self.train_symmetric is None:
            return self
        return replace(self, symmetric=self.train_symmetric, train_symmetric=None)

    def with_bits(self, bits: int) -> QSpec:
        """The same rules with codes of `bits` bits, stored in the narrowest type that fits.

        A range without the lowest code (-127..127) stays one (4 bits: -7..7).
        """
        if not 2 <= bits <= 16:
            raise OptionError(f"{bits} bits cannot be trained", fix="choose 2 to 16 bits")
        kind = self.qtype
        lo, hi = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.signed else (0, (1 << bits) - 1)
        held = holding(lo, hi)
        assert held is not None
        if kind.signed and self.range[0] == -self.range[1]:
            lo += 1
        others = tuple(t for t in self.types if t != held.name)
        return replace(
            self,
            types=(held.name, *others),
            lo=None if lo == held.lo else lo,
            hi=None if hi == held.hi else hi,
        )

    def ways(self) -> tuple[QSpec, ...]:
        """The rules, and those of the types that may have a zero point."""
        if not self.asymmetric:
            return (self,)
        other = replace(
            self,
            types=self.asymmetric,
            symmetric=False,
            asymmetric=(),
            per_channel=False,
            blocks=False,
            lo=None,
            hi=None,
        )
        return (replace(self, asymmetric=()), other)

    def signed(self) -> QSpec:
        """The same rules for values of both signs: as many bits, half of the codes below 0."""
        if self.qtype.signed:
            return self
        half = 1 << self.bits - 1
        held = holding(-half, half - 1)
        assert held is not None
        others = tuple(t for t in self.types if t != held.name)
        whole = held.hi == half - 1
        ends = (None, None) if whole else (-half, half - 1)
        return replace(self, types=(held.name, *others), lo=ends[0], hi=ends[1])

    def unsigned(self) -> QSpec:
        """The same rules for values that are never negative: as many codes, all from 0 up."""
        if not self.qtype.signed:
            return self
        held = f"u{self.qtype.name}"
        others = tuple(t for t in self.types if t != held)
        lo, hi = self.range
        whole = (lo, hi) == (self.qtype.lo, self.qtype.hi)
        return replace(self, types=(held, *others), lo=None, hi=None if whole else hi - lo)

    def violations(self, params: QParams | LogParams, stated: int = 0) -> Iterator[str]:
        """Every rule that `params` breaks, in words.

        `stated` is how much larger codes are in the user's file, which counts the same grid from
        another end (uint8 instead of int8: 128); words are in the codes of the file.
        """
        if isinstance(params, LogParams):
            if not self.logarithmic:
                yield "a logarithmic grid (must be linear)"
            return
        if self.logarithmic:
            yield "a linear grid (must be logarithmic)"
            return
        exempt = params.axis is None and params.qtype.name in self.asymmetric
        if params.qtype.name not in self.types and not exempt:
            yield f"type {params.qtype} (accepted: {', '.join(self.types)})"
        if self.symmetric and np.any(params.zero_point) and not exempt:
            bad = params.zero_point.reshape(-1)[np.argmax(params.zero_point.reshape(-1) != 0)]
            yield f"{_counted(params, stated)}zero point {bad + stated} (must be {stated})"
        if params.block and not self.blocks:
            yield "one scale per block (not accepted)"
        elif params.axis is not None and not self.per_channel and not params.block:
            yield "one scale per channel (must be one per tensor)"
        lo, hi = self.codes(params.qtype)
        if self.full_range and (params.lo, params.hi) != (lo, hi):
            assert params.lo is not None and params.hi is not None
            has, must = (
                f"{a + stated}..{b + stated}" for a, b in ((params.lo, params.hi), (lo, hi))
            )
            yield f"{_counted(params, stated)}range {has} (must be {must})"
        if self.power_of_two:
            mantissa, _ = np.frexp(params.scale.reshape(-1))
            odd = params.scale.reshape(-1)[mantissa != 0.5]
            if odd.size:
                yield f"scale {odd[0]:.6g} (must be a power of two)"

    def __str__(self) -> str:
        if self.logarithmic:
            return f"{self.bits} bits, logarithmic, per tensor"
        every = {name for name, kind in QTYPES.items() if kind.bits <= 16}
        words = ["any type" if every <= set(self.types) else "/".join(self.types)]
        lo, hi = self.range
        if self.full_range and (lo, hi) != (self.qtype.lo, self.qtype.hi):
            words.append(f"codes {lo}..{hi}")
        words.append("symmetric" if self.symmetric else "any zero point")
        words.append("per tensor or channel" if self.per_channel else "per tensor")
        if self.power_of_two:
            words.append("power-of-two scales")
        if self.asymmetric:
            words.append(f"{'/'.join(self.asymmetric)} per tensor with any zero point")
        return ", ".join(words)


@dataclass(frozen=True)
class Scheme:
    """The quantizers a target accepts, by the role of a tensor."""

    weight: QSpec
    activation: QSpec
    bias: QSpec | None = None
    """None: biases stay float."""

    def __post_init__(self) -> None:
        """Refuse what is no QSpec, such as the name of a type."""
        for name in ("weight", "activation", "bias"):
            given = getattr(self, name)
            if not (isinstance(given, QSpec) or (given is None and name == "bias")):
                one = given if isinstance(given, str) else "int8"
                raise OptionError(f"Scheme: {name}={given!r}", fix=f'give a QSpec(("{one}",))')

    def violations(self, params: QParams | LogParams, stated: int = 0) -> list[str]:
        """Every rule that `params` breaks; `stated` as in `QSpec.violations`."""
        spec = {
            Role.WEIGHT: self.weight,
            Role.ACTIVATION: self.activation,
            Role.BIAS: self.bias,
        }[params.role]
        if spec is None:
            return ["a quantized bias (must stay float)"]
        return list(spec.violations(params, stated))


def _counted(params: QParams, stated: int) -> str:
    """The type that the file has, if it is another one."""
    if not stated:
        return ""
    return f"{'u' if stated > 0 else ''}int{params.qtype.bits} "
