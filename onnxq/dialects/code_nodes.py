"""QuantizeLinear and DequantizeLinear nodes around operators that worked on codes.

One DequantizeLinear serves all consumers of the same codes with the same parameters.
Names follow from those already there: the real values of codes 'c.codes' are 'c', those of any
other codes 'c' are 'c.real' before the quantizer that makes the codes, and 'c.dequantized' after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.dialects.node_rewrite import Declined, invalid
from onnxq.edit import constant, inputs_of, new_node, producer, variable
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.graph.constants import array, computed
from onnxq.quant.qparams import Array, QParams
from onnxq.quant.qtypes import qtype

CODES_SUFFIX = ".codes"

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class CodeGrid:
    """Scale and zero point of codes; the zero point's type is the type of the codes."""

    scale: Array
    zero_point: Array
    axis: int | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal grids."""
        scale, zero = self.scale, self.zero_point
        return (scale.dtype, scale.tobytes(), zero.dtype, zero.tobytes(), scale.shape, self.axis)

    def checked(self, codes: gs.Tensor) -> CodeGrid:
        """The same grid; an error names the tensor that cannot have it."""
        kind = qtype(self.zero_point.dtype)
        if codes.dtype is not None and codes.dtype != kind.dtype:
            raise invalid(
                f"'{codes.name}' has {np.dtype(codes.dtype)} codes, but its zero point is {kind}"
            )
        params = QParams(codes.name, kind, self.scale, self.zero_point, self.axis)
        params.check_shape(codes.shape)
        return self

    def check_reach(self, codes: gs.Tensor) -> None:
        """Raise if codes represent numbers beyond float32.

        Integer kernels multiply the scales of both operands first, and so may never meet the
        infinity that a float operator meets.
        """
        ends = np.iinfo(self.zero_point.dtype)
        if float(self.scale.max()) * (int(ends.max) - int(ends.min)) > _LARGEST:
            raise QParamsError(
                f"the codes of '{codes.name}' represent values beyond float32: their scale is "
                f"{self.scale.max():.4g}",
                fix="recalibrate this tensor",
            )


def grid_of(
    node: gs.Node, at: int, codes: gs.Tensor | None, axis: int | None, fallback: Any = None
) -> CodeGrid:
    """The grid whose scale is input `at` of `node`, with the zero point right after it.

    A missing zero point is 0 in the type of the codes, or in the type `fallback`.
    """
    given = inputs_of(node, at + 2)
    scale, zero_point = computed(given[at]), computed(given[at + 1])
    what = "its result" if codes is None else f"'{codes.name}'"
    values = (scale, zero_point)
    for tensor, value, kind in zip(given[at:], values, ("scale", "zero point"), strict=True):
        if tensor is not None and value is None:
            raise Declined(
                f"the {kind} '{tensor.name}' of {what} is computed at run time; if it could be "
                "constant, run 'fold-constants' first"
            )
    if scale is None:
        raise invalid(f"{what} has no scale")
    if zero_point is None:
        stored = array(codes) if isinstance(codes, gs.Constant) else None
        dtype = stored.dtype if stored is not None else fallback
        if dtype is None and codes is not None:
            dtype = codes.dtype
        if dtype is None:
            raise Declined(f"the type of the codes of {what} is not specified")
        zero_point = np.zeros((), dtype)
    if scale.size == 1:
        if zero_point.size != 1:
            raise QParamsError(
                f"{what} has one scale but {zero_point.size} zero points",
                fix="give as many zero points as scales",
            )
        scale, zero_point, axis = scale.reshape(()), zero_point.reshape(()), None
    elif axis is None or scale.ndim != 1:
        raise Declined(f"the scale of {what} has shape {list(scale.shape)}")
    elif zero_point.size == 1:
        zero_point = np.full(scale.shape, zero_point.reshape(()))
    return CodeGrid(scale, zero_point, axis)


def channel_permutations(rank: int) -> tuple[list[int], list[int]]:
    """The permutations from channels last to channels first, and back."""
    inner = range(1, rank - 1)
    return [0, rank - 1, *inner], [0, *(i + 1 for i in inner), 1]


class CodeNodes:
    """The nodes made for one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.ranks: dict[int, int] = {}
        """Rank of codes, by `id`, if an operator implies it and the file does not specify it."""
        self._reals: dict[tuple[object, ...], gs.Tensor] = {}
        self._constants: dict[tuple[object, ...], tuple[gs.Tensor, gs.Tensor]] = {}

    def real(self, codes: gs.Tensor, grid: CodeGrid) -> gs.Tensor:
        """The real values of `codes`, made where the codes are: bodies see them, too."""
        key = (id(codes), *grid.key)
        if key in self._reals:
            return self._reals[key]
        name = codes.name.removesuffix(CODES_SUFFIX)
        real = self._reals[key] = self._float(codes, f"{name}.dequantized", grid)
        node = producer(codes)
        graph = getattr(codes, "owner", self.model.graph) if node is None else node.owner
        attrs = {} if grid.axis is None else {"axis": grid.axis}
        inputs, name = [codes, *self._parameters(codes, grid)], f"{name}.dequantize"
        op = "DequantizeLinear"
        new_node(self.model, op, inputs, [real], name=name, attrs=attrs, graph=graph)
        if grid.axis is not None:
            self.model.require_opset(13, f"one scale per channel (tensor '{codes.name}')")
        return real

    def source(self, codes: gs.Tensor, grid: CodeGrid, graph: gs.Graph) -> gs.Tensor:
        """A new tensor of real values from which a new QuantizeLinear makes `codes`.

        The former producer of `codes` must have released it.
        """
        plain = codes.name.removesuffix(CODES_SUFFIX)
        real = self._float(codes, plain if plain != codes.name else f"{plain}.real", grid)
        inputs, name = [real, *self._parameters(codes, grid)], f"{plain}.quantize"
        new_node(self.model, "QuantizeLinear", inputs, [codes], name=name, graph=graph)
        return real

    def _float(self, codes: gs.Tensor, name: str, grid: CodeGrid) -> gs.Tensor:
        made = variable(self.model, name, like=codes)
        made.dtype = grid.scale.dtype
        return made

    def _parameters(self, codes: gs.Tensor, grid: CodeGrid) -> tuple[gs.Tensor, gs.Tensor]:
        """Constants of the grid, one pair for the quantizer of some codes and its consumers."""
        key = (id(codes), *grid.key)
        if key not in self._constants:
            self._constants[key] = (
                constant(self.model, f"{codes.name}.scale", grid.scale),
                constant(self.model, f"{codes.name}.zero_point", grid.zero_point),
            )
        return self._constants[key]
