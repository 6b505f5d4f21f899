"""The axis of a weight's output channels: the one table for every pass and backend.

    operator        input   weight layout                     output channels
    Conv            1       (C_out, C_in/g, k...)             axis 0
    ConvTranspose   1       (C_in, C_out/g, k...)             axis 1, counted once per group
    Gemm            1       (K, N), transB: (N, K)            axis 1, transB: axis 0
    MatMul          1       (..., K, N)                       last axis

Gemm's transA concerns the activation alone. A grouped ConvTranspose has C_out = g * shape[1]
output channels but only shape[1] positions on the axis: channel j of group i is computed from
rows i*C_in/g .. (i+1)*C_in/g, so one-axis scales are shared by all groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.graph import domain_of
from onnxq.quant.qparams import Array

LINEAR_OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators that multiply an activation with a weight and sum."""

BIAS_INPUT = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}
"""Input number of the bias; MatMul has none."""


@dataclass(frozen=True)
class WeightAxis:
    """The way one node uses its weight."""

    axis: int
    """Output-channel axis of the weight, counted from the front."""
    groups: int
    """How many groups share each position of the axis (1 except for grouped ConvTranspose)."""

    def channels(self, shape: tuple[int, ...]) -> int:
        """Number of output channels."""
        return shape[self.axis] * self.groups

    def scale(self, weight: Array, gain: Array) -> Array:
        """`weight` with each output channel multiplied by its entry of `gain`, in float64."""
        values = weight.astype(np.float64)
        if self.groups == 1:
            view = [1] * weight.ndim
            view[self.axis] = -1
            return np.asarray(values * gain.reshape(view))
        # (C_in, C_out/g, k...) as (g, C_in/g, C_out/g, k...): group i owns rows and channels i.
        split = (self.groups, weight.shape[0] // self.groups, *weight.shape[1:])
        view = [self.groups, 1, weight.shape[1]] + [1] * (weight.ndim - 2)
        return np.asarray((values.reshape(split) * gain.reshape(view)).reshape(weight.shape))


def weight_axis(node: gs.Node, rank: int) -> WeightAxis | None:
    """The layout of the weight (input 1) of `node`.

    None if `node` is not a linear layer, or if no runtime takes a weight of this rank.
    """
    if domain_of(node):
        return None
    if node.op == "Conv" and rank >= 2:
        return WeightAxis(0, 1)
    if node.op == "ConvTranspose" and rank >= 2:
        return WeightAxis(1, int(node.attrs.get("group", 1)))
    if node.op == "Gemm" and rank == 2:
        return WeightAxis(0 if node.attrs.get("transB", 0) else 1, 1)
    if node.op == "MatMul" and rank >= 2:
        return WeightAxis(rank - 1, 1)
    return None
