"""What quantized weights take in memory, and how far they are from the float ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.arrays.pieces import blocks
from onnxq.calibration.trials.trial import decibels
from onnxq.canonical.quantized_weights import quantized_weights
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.graph.dequantized import loaded
from onnxq.operators.op_kind import weight_of


@dataclass(frozen=True)
class WeightCost:
    """The weights of a network, before and after."""

    count: int
    float_bytes: int
    stored_bytes: float
    """Of packed codes, float32 scales, and zero points if there are any."""
    share: float
    """The squared error as a share of the squares."""

    @property
    def sqnr(self) -> float:
        """In dB."""
        return decibels(self.share)

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"quantized weights ({self.count}) take {_size(self.stored_bytes)}, "
            f"{_size(self.float_bytes)} in float"
        )


def weight_cost(model: Model, quantized: Model) -> WeightCost | None:
    """Compare the weights of a float model with those of its canonical form; None without any."""
    weights = {w.name: w for w in map(weight_of, model.nodes()) if w is not None}
    count, before, after, signal, error = 0, 0, 0.0, 0.0, 0.0
    for node, params, values in quantized_weights(quantized):
        old = array(weights.get(node.inputs[0].name))
        if old is None:
            continue
        count += 1
        before += old.nbytes
        zeros = params.scale.size if np.any(params.zero_point) else 0
        after += (old.size + zeros) * params.qtype.bits / 8 + 4 * params.scale.size
        rounded = params.fake(loaded(values))
        for at in blocks(old.shape):
            floats = old[at].astype(np.float64)
            signal += float(np.square(floats).sum())
            error += float(np.square(floats - rounded[at]).sum())
    return WeightCost(count, before, after, error / (signal or 1.0)) if count else None


def _size(number: float) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{number / 1e3:.1f} kB"


__all__ = ["WeightCost", "weight_cost"]
