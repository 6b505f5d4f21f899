r"""The inputs of a linear layer as rows of a matrix, and its weight as the matrix they multiply.

    Gemm, MatMul    y = X W           one row of X for each vector of the input
    Conv            y_g = X_g W_g     one row for each window of the input, for each group g

W has the shape (groups, inputs, outputs) everywhere.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.operators.sliding_windows import Windows
from onnxq.quant.qparams import Array

LARGEST = 4096
"""Most inputs of an output: a matrix of their products takes 128 MB."""
_WINDOWS = ("strides", "pads", "dilations", "auto_pad")


@dataclass(frozen=True)
class LayerInputs:
    """What a layer multiplies its weight with; layers with equal ones share the products."""

    tensor: str
    groups: int
    inputs: int
    kernel: tuple[int, ...] | None = None
    """The shape of a convolution's windows; None for other layers."""
    windows: tuple[tuple[str, Any], ...] = ()
    """The attributes that place them."""

    @classmethod
    def of(cls, layer: gs.Node, weight: tuple[int, ...]) -> LayerInputs | str:
        """The inputs of a layer with a weight of this shape, or why they cannot be had."""
        tensor, shape = str(layer.inputs[0].name), weight
        if layer.op == "Conv" and len(shape) > 2:
            group = int(layer.attrs.get("group", 1))
            attributes = [(k, layer.attrs[k]) for k in _WINDOWS if k in layer.attrs]
            fixed = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in attributes)
            made = cls(tensor, group, math.prod(shape[1:]), shape[2:], fixed)
        elif layer.op in ("Gemm", "MatMul") and len(shape) == 2 and not layer.attrs.get("transA"):
            made = cls(tensor, 1, shape[1 if layer.attrs.get("transB") else 0])
        else:
            return f"GPTQ does not know {layer.op} of this form"
        if made.inputs > LARGEST:
            return f"each output has {made.inputs} inputs, and GPTQ takes {LARGEST}"
        return made

    @property
    def bytes(self) -> int:
        """What the products take in memory."""
        return 8 * self.groups * self.inputs**2

    def products(self, values: Array, rows: int) -> Array:
        """X^T X of each group, from the values of the tensor; of `rows` rows at most."""
        found = self._rows(values, rows)
        return np.asarray(found.transpose(0, 2, 1) @ found)

    def _rows(self, values: Array, most: int) -> Array:
        """X of each group, of shape (groups, rows, inputs); chosen evenly if there are more."""
        if self.kernel is None:
            flat = values.reshape(1, -1, self.inputs)
            return flat[:, _evenly(flat.shape[1], most)].astype(np.float64)
        windows = Windows.of(dict(self.windows), values.shape[2:], self.kernel)
        padded = windows.pad(values)
        chosen = _evenly(len(values) * windows.count, most)
        at = np.unravel_index(chosen, (len(values), *windows.output))
        taps = []
        for offset in itertools.product(*map(range, self.kernel)):
            place: Any = (..., *windows.slices(offset))
            moved = padded[place]
            taps.append(np.moveaxis(moved, 1, -1)[at])  # (rows, channels)
        columns = np.stack(taps, axis=-1).astype(np.float64)
        per_group = columns.reshape(len(chosen), self.groups, self.inputs)
        return np.ascontiguousarray(per_group.transpose(1, 0, 2))


def as_matrices(layer: gs.Node, weight: Array) -> Array:
    """A weight, or whatever has its shape, as (groups, inputs, outputs)."""
    if layer.op == "Conv":
        group = int(layer.attrs.get("group", 1))
        return weight.reshape(group, len(weight) // group, -1).transpose(0, 2, 1)
    return (weight.T if layer.attrs.get("transB") else weight)[None]


def as_weight(layer: gs.Node, matrices: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of `as_matrices`."""
    if layer.op == "Conv":
        return matrices.transpose(0, 2, 1).reshape(shape)
    return np.asarray(matrices[0].T if layer.attrs.get("transB") else matrices[0])


def _evenly(count: int, most: int) -> Array:
    return np.arange(count) if count <= most else np.arange(most) * count // most


__all__ = ["LARGEST", "LayerInputs", "as_matrices", "as_weight"]
