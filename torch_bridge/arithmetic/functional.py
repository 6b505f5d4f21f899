"""Fake quantization with gradients: straight-through, LSQ and LSQ+.

All three compute, bit for bit, what QuantizeLinear and DequantizeLinear do in onnxruntime:

    y = (clamp(round_half_even(x / scale) + zero_point, lo, hi) - zero_point) * scale

There is one scale for the whole tensor (axis None), per channel (1-D, along `axis`) or per block of
`block` elements along `axis` (the shape of x, but with one scale per block along `axis`). Gradients
are in `torch_bridge.arithmetic.kernels`. Both ONNX exporters write one `onnxq::FakeQuantize` node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_bridge.arithmetic.grid import Grid, working_type
from torch_bridge.arithmetic.kernels import (
    EAGER,
    Kernels,
    ZeroPoint,
    compile_kernels,
    kernels_for,
    uniform,
)
from torch_bridge.arithmetic.onnx_node import dynamo_node, is_dynamo_export, script_node

__all__ = ["compile_kernels", "fake_quantize", "lsq", "lsq_plus"]


def fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor, grid: Grid) -> Tensor:
    """Quantize and dequantize, straight-through.

    dx = dy where lo <= round(x / scale) + zero_point <= hi, else 0; nothing flows to the scale.

    Args:
        x: any floating-point tensor; narrower types are computed in float32.
        scale: positive, float32.
        zero_point: integers in lo..hi, in the shape of the scale.
        grid: the codes, and the elements that share a scale.
    """
    if is_dynamo_export():
        return dynamo_node(x, scale, zero_point, grid)
    return _StraightThrough.apply(x, scale, zero_point, grid)


def lsq(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    grid: Grid,
    *,
    grad_scale: float,
    spend_gradient: bool = False,
) -> Tensor:
    """Quantize and dequantize; the scale learns (Learned Step Size Quantization).

    With v = x / scale, L = lo - zero_point, H = hi - zero_point:

        dx     = dy where L < v < H, else 0
        dscale = grad_scale * Σ dy * (round(v) - v where L < v < H; L where v <= L; H where v >= H)

    The sum runs over all elements that share the scale.

    With `spend_gradient` dx may overwrite dy. That is safe if the result has one consumer, which
    computes its gradient into new memory, as a convolution does for its weights.
    """
    if is_dynamo_export():
        return dynamo_node(x, scale, zero_point, grid)
    return _Learned.apply(x, scale, zero_point, grid, (grad_scale, spend_gradient))


def lsq_plus(
    x: Tensor, scale: Tensor, zero_point: Tensor, grid: Grid, *, grad_scale: float
) -> Tensor:
    """Quantize and dequantize; scale and zero point learn (LSQ+).

    `zero_point` is a real number; the code uses z = clamp(round(zero_point), lo, hi), and the
    gradient passes the rounding straight through. dx and dscale are those of `lsq` for z, and

        dzero_point = grad_scale * Σ dy * (0 where L < v < H, else -scale)
    """
    if torch.onnx.is_in_onnx_export():
        integer = zero_point.round().clamp(grid.lo, grid.hi).to(torch.int32)
        return fake_quantize(x, scale, integer, grid)
    return _Learned.apply(x, scale, zero_point, grid, (grad_scale, False))


class TensorFunction(torch.autograd.Function):
    """An autograd function that returns one tensor."""

    if TYPE_CHECKING:  # torch leaves it untyped

        @classmethod
        def apply(cls, *args: Any) -> Tensor:
            """Compute `forward`, and record `backward`."""
            raise NotImplementedError


class Rounding(TensorFunction):
    """Rounding to a grid; subclasses give it a gradient, with an `option` of their own."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        scale: Tensor,
        zero_point: Tensor,
        grid: Grid,
        option: Any = None,
    ) -> Tensor:
        """The formula at the top of this module."""
        ctx.save_for_backward(values, scale, zero_point)
        kernels, x, s, z = operands(values, scale, zero_point, grid)
        ctx.grid, ctx.z = grid, None if grid.block else z  # for blocks it is as large as x
        ctx.option = option  # one: torch.compile does not trace a variable number of them
        return _typed(kernels.forward(x, s, z, grid.lo, grid.hi), values.dtype)

    @staticmethod
    def symbolic(g: Any, values: Any, scale: Any, zero_point: Any, grid: Grid, *_: Any) -> Any:
        """The node that TorchScript's exporter writes."""
        return script_node(g, values, scale, zero_point, grid)


class _StraightThrough(Rounding):
    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        values, scale, zero_point = ctx.saved_tensors
        grid = ctx.grid
        kernels, x, s, z = operands(values, scale, zero_point, grid, ctx.z)
        dx = kernels.ste(_typed(dy, x.dtype), x, s, z, grid.lo, grid.hi)
        return _typed(dx, dy.dtype), None, None, None


class _Learned(Rounding):
    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        values, scale, zero_point = ctx.saved_tensors
        grid, (grad_scale, spend_gradient) = ctx.grid, ctx.option
        kernels, x, s, z = operands(values, scale, zero_point, grid, ctx.z)
        dy_wide = _typed(dy, x.dtype)
        dims = [] if grid.block else grid.others(x, scale)
        spend = spend_gradient and not ctx.needs_input_grad[2]
        dx, terms = kernels.lsq(dy_wide, x, s, z, grid.lo, grid.hi, dims, spend)
        ds = terms if dims or not x.dim() else grid.gather(terms, scale)
        ds = _typed(ds * grad_scale, scale.dtype)
        dz = None
        if ctx.needs_input_grad[2]:
            outside = (dy_wide - dx).mul(-s)
            dz = (grid.gather(outside, zero_point) * grad_scale).to(zero_point.dtype)
        return _typed(dx, dy.dtype), ds.reshape(scale.shape), dz, None, None


def operands(
    values: Tensor, scale: Tensor, zero_point: Tensor, grid: Grid, z: ZeroPoint | None = None
) -> tuple[Kernels, Tensor, Tensor, ZeroPoint]:
    """The kernels to use, and x, s and z in the form that they take.

    A real zero point is rounded and clamped to the range. If all channels have the same zero point,
    the eager kernels take a number. The backward pass passes the `z` of the forward pass.
    """
    dtype = working_type(values)
    x = _typed(values, dtype)
    kernels = kernels_for(x)
    if kernels is not EAGER or torch.is_grad_enabled():
        # A second derivative goes through dy alone; kernels are compiled again for parameters.
        x, scale, zero_point = x.detach(), scale.detach(), zero_point.detach()
    s = grid.spread(_typed(scale, dtype), values)
    if isinstance(z, Tensor) or (z is not None and kernels is EAGER):  # the kernels may differ now
        return kernels, x, s, z
    if zero_point.is_floating_point():
        zero_point = zero_point.round().clamp(grid.lo, grid.hi)
    if kernels is EAGER and zero_point.shape == scale.shape:
        z = uniform(zero_point)
        if z is not None:
            return kernels, x, s, z
    return kernels, x, s, grid.spread(_typed(zero_point, dtype), values)


def _typed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` in this type; comparing first takes a tenth of the time of a needless conversion."""
    return x if x.dtype == dtype else x.to(dtype)
