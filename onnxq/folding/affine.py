"""y = x * gain + shift per channel: BatchNormalization, and arithmetic with constants.

    BatchNormalization   gain = gamma / sqrt(var + eps)      shift = beta - mean * gain
    x * c, c * x         gain = c                            shift = 0
    x / c                gain = 1 / c                        shift = 0
    x + c, c + x         gain = 1                            shift = c
    x - c                gain = 1                            shift = -c
    c - x                gain = -1                           shift = c

Everything is computed in float64, so a chain of them is rounded once, when it reaches the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.graph.constants import array, is_constant
from onnxq.quant.qparams import Array

ELEMENTWISE = ("Mul", "Div", "Add", "Sub")
"""Operators that are affine when one operand is constant."""

quiet = np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore")
"""Numbers beyond the float range are detected later, and declined with a reason."""


@quiet
def all_finite(values: Array) -> bool:
    """Whether no value is inf or NaN; a finite sum proves it at half the price of looking."""
    return math.isfinite(np.add.reduce(values, axis=None)) or bool(np.isfinite(values).all())


class CannotFold(Exception):
    """The reason why an affine step has to stay where it is, as a sentence for the user."""


@dataclass(slots=True)
class Affine:
    """Gain and shift: float64 vectors over the channels, or one number for all of them."""

    gain: Array | float
    shift: Array | float

    def then(self, step: Affine) -> Affine:
        """This one followed by `step`."""
        return Affine(self.gain * step.gain, self.shift * step.gain + step.shift)

    def vectors(self, channels: int) -> tuple[Array, Array]:
        """Gain and shift with one finite entry per channel."""
        gain, shift = (
            np.full(channels, v) if isinstance(v, float) else v for v in (self.gain, self.shift)
        )
        if gain.size != channels or shift.size != channels:
            raise CannotFold(f"it has {gain.size} channels, the layer {channels}")
        if not all_finite(gain + shift):
            raise CannotFold("its gain or shift is not a finite number (variance or divisor of 0?)")
        return gain, shift


IDENTITY = Affine(1.0, 0.0)


@dataclass(slots=True)
class ChannelLayout:
    """The channel axis of an activation, for constants that broadcast against it."""

    channels: int
    from_end: int
    """The channel axis counted from the end: 1 = last."""
    rank: int
    """Rank of the activation, or the least that it can be."""

    def vector(self, value: Array) -> Array | float | None:
        """`value` per channel; None if it varies along other axes or raises the rank."""
        if value.ndim > self.rank:
            return None
        if value.size == 1:
            return float(value.reshape(()))
        at = value.ndim - self.from_end
        if at < 0 or value.size != self.channels or value.shape[at] != self.channels:
            return None
        return value.reshape(-1).astype(np.float64)


@quiet
def batch_norm(node: gs.Node) -> Affine:
    """Gain and shift of an inference BatchNormalization on each channel (axis 1)."""
    if node.attrs.get("training_mode", 0) or any(t.name for t in node.outputs[1:]):
        raise CannotFold("it computes batch statistics (training mode)")
    gamma, beta, mean, var = (array(t) for t in node.inputs[1:5])
    if gamma is None or beta is None or mean is None or var is None:
        name = next(t.name for t in node.inputs[1:5] if not is_constant(t))
        raise CannotFold(f"'{name}' is not a constant")
    for what, value in (("scale", gamma), ("bias", beta), ("mean", mean), ("variance", var)):
        if value.shape != (gamma.size,):
            raise CannotFold(f"its {what} has shape {value.shape}, not one value per channel")
    gain = gamma / np.sqrt(var.astype(np.float64) + node.attrs.get("epsilon", 1e-5))
    return Affine(gain, beta - mean * gain)


@quiet
def elementwise(node: gs.Node, x: gs.Tensor, layout: ChannelLayout) -> Affine | None:
    """Gain and shift of Mul, Div, Add or Sub of `x` and a constant; None if neither is constant."""
    right = node.inputs[0] is x
    value = array(node.inputs[1 if right else 0])
    if value is None:
        return None
    if node.attrs:
        raise CannotFold("it broadcasts by the rules of opset 6 and earlier")
    c = layout.vector(value)
    if c is None:
        raise CannotFold(
            f"its constant of shape {value.shape} is not one value per channel of the layer"
        )
    if node.op == "Mul":
        return Affine(c, 0.0)
    if node.op == "Add":
        return Affine(1.0, c)
    if node.op == "Sub":
        return Affine(1.0, -c) if right else Affine(-1.0, c)
    if not right:
        raise CannotFold("it divides a constant by the layer's result")
    return Affine(float(np.float64(1.0) / c) if isinstance(c, float) else 1.0 / c, 0.0)
