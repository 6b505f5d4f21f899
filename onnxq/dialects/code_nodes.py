"""QuantizeLinear and DequantizeLinear nodes put around operators that worked on codes.

One DequantizeLinear serves all readers of the same codes with the same parameters.
Names follow from those already there: the real values of codes 'c.codes' are 'c', those of any
other codes 'c' are 'c.real' where a quantizer makes the codes, and 'c.dequantized' behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.dialects.node_rewrite import Declined
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
            raise QParamsError(
                f"'{codes.name}' has {np.dtype(codes.dtype)} codes, but its zero point is {kind}",
                fix="the file is not a valid ONNX model: export it again",
            )
        params = QParams(codes.name, kind, self.scale, self.zero_point, self.axis)
        params.check_shape(codes.shape)
        return self

    def check_reach(self, codes: gs.Tensor) -> None:
        """Raise where codes stand for numbers beyond float32.

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
    """The grid whose scale is input `at` of `node`, with the zero point right behind it.

    Where there is no zero point it is 0 in the type of the codes, or in the type `fallback`.
    """
    given = inputs_of(node, at + 2)
    scale, zero_point = computed(given[at]), computed(given[at + 1])
    what = "its result" if codes is None else f"'{codes.name}'"
    for tensor, value, part in ((given[at], scale, "scale"), (given[at + 1], zero_point, "zero")):
        if tensor is not None and value is None:
            kind = "scale" if part == "scale" else "zero point"
            raise Declined(
                f"the {kind} '{tensor.name}' of {what} is computed at run time; if it could be "
                "constant, run 'fold-constants' first"
            )
    if scale is None:
        raise QParamsError(
            f"{what} has no scale", fix="the file is not a valid ONNX model: export it again"
        )
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


class CodeNodes:
    """Makes the nodes of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.ranks: dict[int, int] = {}
        """Rank of codes, by `id`, if an operator implies what the file does not specify."""
        self._reals: dict[tuple[object, ...], gs.Tensor] = {}
        self._constants: dict[tuple[object, ...], tuple[gs.Tensor, gs.Tensor]] = {}

    def real(self, codes: gs.Tensor, grid: CodeGrid) -> gs.Tensor:
        """The real values of `codes`, made where the codes are: bodies see them, too."""
        maker = producer(codes)
        graph = getattr(codes, "owner", self.model.graph) if maker is None else maker.owner
        key = (id(codes), *grid.key)
        known = self._reals.get(key)
        if known is None:
            name = codes.name.removesuffix(CODES_SUFFIX)
            known = self._reals[key] = self._float(codes, f"{name}.dequantized", grid)
            attrs = {} if grid.axis is None else {"axis": grid.axis}
            inputs = [codes, *self._parameters(codes, grid)]
            new_node(
                self.model,
                "DequantizeLinear",
                inputs,
                [known],
                name=f"{name}.dequantize",
                attrs=attrs,
                graph=graph,
            )
            if grid.axis is not None:
                self.model.require_opset(13, f"one scale per channel (tensor '{codes.name}')")
        return known

    def source(self, codes: gs.Tensor, grid: CodeGrid, graph: gs.Graph) -> gs.Tensor:
        """A new tensor of real values that a new QuantizeLinear makes `codes` of.

        Whatever made `codes` before must have let go of it.
        """
        name = codes.name
        plain = name.removesuffix(CODES_SUFFIX)
        real = self._float(codes, plain if plain != name else f"{name}.real", grid)
        inputs = [real, *self._parameters(codes, grid)]
        new_node(
            self.model, "QuantizeLinear", inputs, [codes], name=f"{plain}.quantize", graph=graph
        )
        return real

    def _float(self, codes: gs.Tensor, name: str, grid: CodeGrid) -> gs.Tensor:
        made = variable(self.model, name, like=codes)
        made.dtype = grid.scale.dtype
        return made

    def _parameters(self, codes: gs.Tensor, grid: CodeGrid) -> tuple[gs.Tensor, gs.Tensor]:
        """Constants of the grid, one pair for the quantizer of some codes and its readers."""
        key = (id(codes), *grid.key)
        known = self._constants.get(key)
        if known is None:
            known = (
                constant(self.model, f"{codes.name}.scale", grid.scale),
                constant(self.model, f"{codes.name}.zero_point", grid.zero_point),
            )
            self._constants[key] = known
        return known


__all__ = ["CODES_SUFFIX", "CodeGrid", "CodeNodes", "grid_of"]
