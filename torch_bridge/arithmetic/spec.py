"""The specification of one quantizer: the training side of a backend's `QSpec`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from onnxq.canonical.fake_quantize import container
from onnxq.errors import OptionError
from onnxq.quant.qtypes import QType
from onnxq.quant.scheme import QSpec
from torch_bridge.arithmetic.grid import Grid


@dataclass(frozen=True)
class QuantizerSpec:
    """Codes, symmetry and granularity of one quantizer."""

    qtype: QType
    """The type that holds the codes."""
    lo: int
    """Lowest code."""
    hi: int
    """Highest code."""
    symmetric: bool
    """Whether the zero point is 0."""
    axis: int | None
    """The axis of the scales; None for one scale."""
    power_of_two: bool = False
    """Whether scales must be powers of two."""
    block: int = 0
    """Elements per scale along `axis`; 0 for a scale per channel."""
    parameter: bool = False
    """Whether the tensor is a weight or bias: its first axis is no batch, and it may start as 0."""

    def __post_init__(self) -> None:
        if not self.qtype.lo <= self.lo < self.hi <= self.qtype.hi:
            raise OptionError(
                f"{self.lo}..{self.hi} is not a range of codes of {self.qtype} "
                f"({self.qtype.lo}..{self.qtype.hi})",
                fix="choose a wider type or a narrower range",
            )
        if self.qtype.bits > 16:
            raise OptionError(
                f"{self.qtype} cannot be trained",
                fix="train biases in float: 'quantize-bias' makes 32-bit biases on conversion",
            )
        if self.symmetric and not self.lo <= 0 <= self.hi:
            raise OptionError(
                f"range {self.lo}..{self.hi} lacks the code 0, which a symmetric quantizer needs",
                fix="let the range contain 0, or make the quantizer asymmetric",
            )
        if self.block < 0 or (self.block and self.axis is None):
            raise OptionError(
                f"blocks of {self.block} need an axis to run along",
                fix="give the axis, or leave the block size at 0",
            )

    @classmethod
    def of(cls, qspec: QSpec, axis: int | None = None, *, parameter: bool = False) -> QuantizerSpec:
        """The quantizer that a backend trains with; `axis` is ignored if it has one scale."""
        trained = qspec.trained()
        lo, hi = trained.range
        return cls(
            qtype=trained.qtype,
            lo=lo,
            hi=hi,
            symmetric=trained.symmetric,
            axis=axis if trained.per_channel else None,
            power_of_two=trained.power_of_two,
            parameter=parameter,
        )

    @property
    def per_channel(self) -> bool:
        """Whether there is more than one scale: per channel or per block."""
        return self.axis is not None

    @property
    def levels(self) -> int:
        """The number of codes."""
        return self.hi - self.lo + 1

    @property
    def bits(self) -> int:
        """Bits that the codes need."""
        return (self.hi - self.lo).bit_length()

    @property
    def codes(self) -> str:
        """The codes in words: scales of other codes mean other values."""
        return f"{self.qtype} {self.lo}..{self.hi}"

    @property
    def grid(self) -> Grid:
        """The form that the functions in `torch_bridge.arithmetic.functional` take."""
        stored = getattr(torch, container(self.qtype).name)  # int8, uint8, int16 or uint16
        return Grid(self.axis, self.lo, self.hi, self.block, stored)

    def __str__(self) -> str:
        words = [self.codes]
        words.append("symmetric" if self.symmetric else "any zero point")
        if self.block:
            words.append(f"per block of {self.block} along axis {self.axis}")
        else:
            words.append("per tensor" if self.axis is None else f"per channel (axis {self.axis})")
        if self.power_of_two:
            words.append("power-of-two scales")
        return ", ".join(words)
