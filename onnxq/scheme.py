"""What a target accepts: types, symmetry and granularity, for weights, activations and biases.

A `Scheme` is data. The same value tells training which quantizers to use, tells conversion what
to check, and is printed by `onnxq backends`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxq.qparams import QParams, Role


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
    full_range: bool = False
    """Whether all codes of the type are used, since the target has no narrower clamp."""

    def violations(self, params: QParams) -> Iterator[str]:
        """Every rule that `params` breaks, in words."""
        if params.qtype.name not in self.types:
            yield f"type {params.qtype} (accepted: {', '.join(self.types)})"
        if self.symmetric and np.any(params.zero_point):
            bad = params.zero_point.reshape(-1)[np.argmax(params.zero_point.reshape(-1) != 0)]
            yield f"zero point {bad} (must be 0)"
        if params.block and not self.blocks:
            yield "one scale per block (not accepted)"
        elif params.axis is not None and not self.per_channel and not params.block:
            yield "one scale per channel (must be one per tensor)"
        if self.full_range and params.is_narrow:
            yield (
                f"range {params.lo}..{params.hi} (must be the whole "
                f"{params.qtype.lo}..{params.qtype.hi})"
            )

    def __str__(self) -> str:
        words = ["/".join(self.types)]
        words.append("symmetric" if self.symmetric else "any zero point")
        words.append("per tensor or channel" if self.per_channel else "per tensor")
        return ", ".join(words)


@dataclass(frozen=True)
class Scheme:
    """What a target accepts, by the part a tensor plays."""

    weight: QSpec
    activation: QSpec
    bias: QSpec | None = None
    """None: biases stay float."""

    def violations(self, params: QParams) -> list[str]:
        """Every rule that `params` breaks."""
        spec = {
            Role.WEIGHT: self.weight,
            Role.ACTIVATION: self.activation,
            Role.BIAS: self.bias,
        }[params.role]
        if spec is None:
            return ["a quantized bias (must stay float)"]
        return list(spec.violations(params))
