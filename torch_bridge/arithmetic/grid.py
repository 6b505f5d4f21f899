"""The fixed part of a quantizer, and how scales and zero points are broadcast over a tensor."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from onnxq.errors import QParamsError
from torch_bridge.arithmetic.kernels import tracing


class Grid(NamedTuple):
    """Codes lo..hi, with one scale for the tensor, a channel or a block."""

    axis: int | None
    """The axis of the scales; None for one scale."""
    lo: int
    hi: int
    block: int = 0
    """Elements per scale along `axis`; 0 for a scale per channel."""
    stored: torch.dtype | None = None
    """Type of the zero point in ONNX; None for the narrowest that holds lo..hi."""

    def attributes(self) -> dict[str, int]:
        """The attributes of the ONNX node."""
        attrs = {"quant_min": self.lo, "quant_max": self.hi}
        if self.axis is not None:
            attrs["axis"] = self.axis
        if self.block:
            attrs["block_size"] = self.block
        return attrs

    def stored_type(self) -> torch.dtype:
        """Type of the zero point in ONNX."""
        if self.stored is not None:
            return self.stored
        if self.lo < 0:
            return torch.int8 if self.lo >= -128 and self.hi <= 127 else torch.int16
        return torch.uint8 if self.hi <= 255 else torch.uint16

    def spread(self, values: Tensor, x: Tensor) -> Tensor:
        """One value per scale, viewed so that it broadcasts against x."""
        if not values.dim():
            return values
        if self.axis is None:
            if not tracing() and values.numel() != 1:
                raise self._mismatch(values, x)
            return values.reshape(())
        axis = self.axis + x.dim() if self.axis < 0 else self.axis
        if not 0 <= axis < x.dim():
            raise self._mismatch(values, x)
        if self.block:
            size = x.shape[axis]
            if values.dim() != x.dim() or values.shape[axis] != -(-size // self.block):
                raise self._mismatch(values, x)
            return values.repeat_interleave(self.block, axis).narrow(axis, 0, size)
        if values.dim() != 1 or (not tracing() and values.shape[0] != x.shape[axis]):
            raise self._mismatch(values, x)
        shape = [1] * x.dim()
        shape[axis] = -1
        return values.view(shape)

    def gather(self, terms: Tensor, like: Tensor) -> Tensor:
        """Sum over the elements that share a scale, in the shape of `like`: `spread` reversed."""
        if self.block and self.axis is not None:
            axis = self.axis % terms.dim()
            owner = torch.arange(terms.shape[axis], device=terms.device) // self.block
            return terms.new_zeros(like.shape).index_add(axis, owner, terms)
        dims = self.others(terms, like)
        return (terms.sum(dims) if dims else terms).reshape(like.shape)  # [] would mean all

    def others(self, x: Tensor, like: Tensor) -> list[int]:
        """The dimensions of x along which one scale is shared."""
        if self.axis is None or like.dim() == 0:
            return list(range(x.dim()))
        return [d for d in range(x.dim()) if d != self.axis % x.dim()]

    def _mismatch(self, values: Tensor, x: Tensor) -> QParamsError:
        unit = f"blocks of {self.block}" if self.block else "channels"
        where = "one scale" if self.axis is None else f"{unit} along axis {self.axis}"
        return QParamsError(
            f"scales of shape {list(values.shape)} do not match a tensor of shape {list(x.shape)} "
            f"({where})",
            fix="compare the axis with the tensor's layout, or calibrate again",
        )


def working_type(x: Tensor) -> torch.dtype:
    """float64 for float64, else float32: narrower types cannot hold all codes."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
