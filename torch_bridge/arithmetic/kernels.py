"""Arithmetic of the affine fake quantizers: forward and backward, without autograd.

With v = x / s (true division, as onnxruntime computes it), the integer zero point z and the
bounds L = lo - z, H = hi - z of the code without its zero point:

    forward   y = clamp(round_half_even(v), L, H) * s
    STE       dx = dy where L <= round_half_even(v) <= H, else 0
    LSQ       dx = dy where L < v < H, else 0
              ds = Σ dy * (round_half_even(v) - v inside, L below, H above)
              dz = Σ dy * (0 inside, -s outside)

Nothing but x is kept for the backward pass: masks are cheaper to recompute than to store. There
are three implementations that agree to the last bit in y and dx:

* `composed`: one expression per formula. Used while tracing, on other devices and data types,
  and if zero points differ by channel.
* `eager`: in C (`native`). Without a compiled library, a few vectorised passes in place over pieces
  that stay in the cache, with masks by `hardtanh_backward`, which needs no boolean tensor. On a CPU
  these passes are three to five times as fast as `composed`, and C is twice as fast again. A zero
  point that all channels share may be given as a number.
* compiled: `composed` through torch.compile, one pass each: on CUDA by default, elsewhere see
  `compile_kernels`.

Scale and zero point broadcast against x; zero points are floats that hold integers. NaN stays NaN,
so diverging training is visible.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_bridge.arithmetic import native

Dims = list[int]
ZeroPoint = Tensor | float
"""One per scale, or a number if all scales have the same."""


class Kernels(NamedTuple):
    """One implementation of the formulas above."""

    forward: Callable[[Tensor, Tensor, ZeroPoint, int, int], Tensor]
    """x, s, z, lo, hi -> y"""
    ste: Callable[[Tensor, Tensor, Tensor, ZeroPoint, int, int], Tensor]
    """dy, x, s, z, lo, hi -> dx"""
    lsq: Callable[[Tensor, Tensor, Tensor, ZeroPoint, int, int, Dims, bool], tuple[Tensor, Tensor]]
    """dy, x, s, z, lo, hi, dims, spend -> dx and the terms of ds, summed over dims ([]: not summed)

    With `spend` the memory of dy may become that of dx.
    """


# -- composed ----------------------------------------------------------------------------------


def _forward(x: Tensor, s: Tensor, z: ZeroPoint, lo: int, hi: int) -> Tensor:
    return (((x / s).round() + z).clamp(lo, hi) - z) * s


def _ste(dy: Tensor, x: Tensor, s: Tensor, z: ZeroPoint, lo: int, hi: int) -> Tensor:
    code = (x / s).round() + z
    return torch.where((code >= lo) & (code <= hi), dy, 0.0)


def _lsq(
    dy: Tensor,
    x: Tensor,
    s: Tensor,
    z: ZeroPoint,
    lo: int,
    hi: int,
    dims: Dims,
    spend: bool = False,
) -> tuple[Tensor, Tensor]:
    if not isinstance(z, Tensor):
        z = torch.as_tensor(z, dtype=x.dtype)
    low, high = lo - z, hi - z
    v = x / s
    inside = (v > low) & (v < high)
    code = torch.minimum(torch.maximum(v.round(), low), high)
    terms = dy * torch.where(inside, code - v, code)
    return torch.where(inside, dy, 0.0), terms.sum(dims) if dims else terms


COMPOSED = Kernels(_forward, _ste, _lsq)


# -- eager -------------------------------------------------------------------------------------

_hardtanh_backward: Any = torch.ops.aten.hardtanh_backward
"""(dy, x, a, b) -> dy where a < x < b, else 0: the one vectorised masked copy in torch."""

_PIECE = 1 << 16
"""Elements per thread that fit into its cache three times over."""


def _eager_forward(x: Tensor, s: Tensor, z: ZeroPoint, lo: int, hi: int) -> Tensor:
    shift = uniform(z)
    if shift is None:
        return _forward(x, s, z, lo, hi)
    low, high, zero = lo - shift, hi - shift, _zero(x.dtype)
    if native.takes(s, low, high, x):
        return native.forward(x, s, low, high)
    y = torch.empty_like(x)
    step = s.item() if s.numel() == 1 else None
    for s_part, x_part, y_part in _pieces(s, x, y) or [(s, x, y)]:
        torch.div(x_part, s_part, out=y_part).round_().clamp_(low, high)
        # Adding to 0 turns the -0 that rounding returns into the 0 of an integer code.
        if step is not None:
            torch.add(zero, y_part, alpha=step, out=y_part)
        else:
            y_part.mul_(s_part).add_(zero)
    return y


def _eager_ste(dy: Tensor, x: Tensor, s: Tensor, z: ZeroPoint, lo: int, hi: int) -> Tensor:
    shift = uniform(z)
    if shift is None:
        return _ste(dy, x, s, z, lo, hi)
    low, high = lo - shift, hi - shift
    if s.numel() == 1:
        dx: Tensor = _hardtanh_backward(dy, x, *open_interval(s.item(), low, high))
        return dx
    bounds = low - 0.5, high + 0.5
    if torch.is_grad_enabled():  # a second derivative forbids operations in place
        dx = _hardtanh_backward(dy, (x / s).round_(), *bounds)
        return dx
    dx = torch.empty_like(x)
    for s_part, x_part, dy_part, dx_part in _pieces(s, x, dy, dx) or [(s, x, dy, dx)]:
        code = torch.div(x_part, s_part, out=dx_part).round_()
        _hardtanh_backward.grad_input(dy_part, code, *bounds, grad_input=dx_part)
    return dx


def _eager_lsq(
    dy: Tensor,
    x: Tensor,
    s: Tensor,
    z: ZeroPoint,
    lo: int,
    hi: int,
    dims: Dims,
    spend: bool = False,
) -> tuple[Tensor, Tensor]:
    shift = uniform(z)
    if shift is None or torch.is_grad_enabled():
        return _lsq(dy, x, s, z, lo, hi, dims)
    low, high = lo - shift, hi - shift
    dx = dy if spend and dy.is_contiguous() else torch.empty_like(x)
    shared = list(range(s.numel() > 1, x.dim()))  # dimensions that share a scale, if in rows
    if dims == shared and native.takes(s, low, high, x, dy, dx):
        return dx, native.lsq(dy, x, s, low, high, dx)
    pieces = _pieces(s, x, dy, dx) if dims == shared else None
    if pieces is None:
        v, terms = _lsq_terms(x, s, low, high, *(torch.empty_like(x) for _ in range(3)))
        terms.mul_(dy)
        _hardtanh_backward.grad_input(dy, v, low, high, grad_input=dx)
        return dx, terms.sum(dims) if dims else terms
    scratch = [torch.empty_like(pieces[0][1]) for _ in range(3)]
    sums = []
    for s_part, x_part, dy_part, dx_part in pieces:
        if x_part.shape != scratch[0].shape:  # the last piece
            scratch = [t[: x_part.shape[0]] for t in scratch]
        v, terms = _lsq_terms(x_part, s_part, low, high, *scratch)
        sums.append(terms.mul_(dy_part).sum(1) if terms.dim() > 1 else torch.dot(terms, dy_part))
        # Last, since dx may be the memory of dy.
        _hardtanh_backward.grad_input(dy_part, v, low, high, grad_input=dx_part)
    if s.numel() > 1:
        return dx, torch.cat(sums)
    return dx, torch.stack(sums).sum(dtype=torch.float64).to(x.dtype)


def _lsq_terms(
    x: Tensor, s: Tensor, low: float, high: float, v: Tensor, inner: Tensor, terms: Tensor
) -> tuple[Tensor, Tensor]:
    """v, and the factors of dy in ds; the last three arguments are memory to write to."""
    torch.div(x, s, out=v)
    _hardtanh_backward.grad_input(v, v, low, high, grad_input=inner)
    return v, torch.round(v, out=terms).clamp_(low, high).sub_(inner)


def _pieces(s: Tensor, x: Tensor, *others: Tensor) -> list[tuple[Tensor, ...]] | None:
    """Scales and tensors in pieces that stay in the cache with all that is computed from them.

    One scale: parts of the flat tensors. Scales along the first axis: some rows with their scales.
    None if one piece is enough, or for another memory layout.
    """
    size = _PIECE * torch.get_num_threads()
    if x.numel() <= size or not all(t.is_contiguous() for t in (x, *others)):
        return None
    if s.numel() == 1:
        flat = (torch.split(t.view(-1), size) for t in (x, *others))
        return list(zip(itertools.repeat(s), *flat))
    if not len(s) == s.numel() == len(x):
        return None
    rows = max(size * len(x) // x.numel(), 1)
    by_rows = (torch.split(t.reshape(len(x), -1), rows) for t in (s, x, *others))
    return list(zip(*by_rows, strict=True))


EAGER = Kernels(_eager_forward, _eager_ste, _eager_lsq)


def uniform(z: ZeroPoint) -> float | None:
    """The zero point that all channels share, or None."""
    if isinstance(z, float):
        return z
    if z.numel() == 1:
        return float(z.item())
    if not z.any():
        return 0.0
    low, high = torch.aminmax(z)
    return float(low.item()) if low == high else None


@functools.cache
def _zero(dtype: torch.dtype) -> Tensor:
    return torch.zeros((), dtype=dtype)


@functools.lru_cache(maxsize=4096)
def open_interval(scale: float, low: float, high: float) -> tuple[float, float]:
    """The float32 a and b such that a < x < b is the same as low <= round(x / scale) <= high.

    The division is monotone in x, so these bounds exist. They lie within a few floats of
    (low - 1/2) * scale and (high + 1/2) * scale.
    """
    with np.errstate(over="ignore"):
        below, above = _around((low - 0.5) * scale), _around((high + 0.5) * scale)
        out_below = np.rint(below / np.float32(scale)) < low
        out_above = np.rint(above / np.float32(scale)) > high
    return float(below[out_below].max()), float(above[out_above].min())


def _around(value: float) -> np.ndarray:
    """The nine float32 nearest to `value`, in ascending order."""
    near = [np.float32(value)]
    for _ in range(4):
        near.insert(0, np.nextafter(near[0], np.float32(-np.inf)))
        near.append(np.nextafter(near[-1], np.float32(np.inf)))
    return np.array(near, np.float32)


# -- choice ------------------------------------------------------------------------------------

_asked: bool | None = None
"""Whether the user asked for compiled kernels; None: neither for them nor against them."""

_WORTH_COMPILING = 1 << 16
"""Elements from which compiled kernels are faster: a call takes longer than an eager one."""


def compile_kernels(on: bool | None = True) -> None:
    """Compile the kernels that do not exist in C by torch.compile, or return to the eager ones.

    These are the kernels for other devices and data types, and all kernels if `torch_bridge` was
    installed without a compiler. Needs a C++ compiler at run time (Triton on CUDA), and some
    seconds at the first call. Results are the same to the last bit, except for the order in which
    the gradients of scales are summed. None is the default: compiled on CUDA, if Triton is there.
    """
    global _asked
    _asked = on


@functools.cache
def _compile() -> Kernels:
    composed: tuple[Callable[..., Any], ...] = (*COMPOSED, _lsq_spending)
    forward, ste, lsq, lsq_spending = (torch.compile(k, dynamic=True) for k in composed)

    def flat_forward(x: Tensor, s: Tensor, z: ZeroPoint, lo: int, hi: int) -> Tensor:
        y: Tensor = forward(*_flattened(s, z, x), lo, hi)
        return y.view(x.shape)

    def flat_ste(dy: Tensor, x: Tensor, s: Tensor, z: ZeroPoint, lo: int, hi: int) -> Tensor:
        dx: Tensor = ste(*_flattened(s, z, dy, x), lo, hi)
        return dx.view(x.shape)

    def flat_lsq(
        dy: Tensor, x: Tensor, s: Tensor, z: ZeroPoint, lo: int, hi: int, dims: Dims, spend: bool
    ) -> tuple[Tensor, Tensor]:
        tensors = _flattened(s, z, dy, x)
        if tensors[0].dim() < x.dim():
            dims = [tensors[0].dim() - 1] if dims else []
        if spend and dy.is_contiguous() and dims and not torch.is_grad_enabled():
            return dy, lsq_spending(*tensors, lo, hi, dims)
        dx, terms = lsq(*tensors, lo, hi, dims)
        return dx.view(x.shape), terms if dims else terms.view(x.shape)

    return Kernels(flat_forward, flat_ste, flat_lsq)


def _lsq_spending(
    dy: Tensor, x: Tensor, s: Tensor, z: Tensor, lo: int, hi: int, dims: Dims
) -> Tensor:
    dx, terms = _lsq(dy, x, s, z, lo, hi, dims)
    dy.copy_(dx)
    return terms


def _flattened(s: Tensor, z: ZeroPoint, *tensors: Tensor) -> list[Any]:
    """The tensors, s and z: a vector and one scale, or a matrix and a scale per row.

    torch compiles again for every number of dimensions and for dimensions of size 1, and gives up
    after eight times. Other layouts stay as they are.
    """
    x, rows = tensors[-1], s.numel() > 1
    if (
        torch.is_grad_enabled()  # views would take part in a second derivative
        or (rows and not s.shape[0] == s.numel() == x.shape[0])
        or not isinstance(z, Tensor)
        or z.shape != s.shape
        or not all(t.is_contiguous() for t in tensors)
    ):
        return [*tensors, s, z]
    shape, each = ((s.shape[0], -1), (s.shape[0], 1)) if rows else ((-1,), ())
    # `data` is not a view of the tensor: compiled code also checks the shape of a view's base.
    return [*(t.view(shape).data for t in tensors), *(t.view(each).data for t in (s, z))]


def tracing() -> bool:
    """Whether operations are being recorded, so values must not be read.

    Both ONNX exporters record in one of these ways. A call of `torch.onnx` would take ten times as
    long, for every call of every quantizer.
    """
    return torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]


def kernels_for(x: Tensor) -> Kernels:
    """The fastest implementation for this tensor."""
    if tracing():
        return COMPOSED
    if x.device.type == "cpu" and x.dtype == torch.float32:
        worthwhile = _asked and x.numel() >= _WORTH_COMPILING and not native.library()
        return _compile() if worthwhile else EAGER
    by_default = _asked is None and x.device.type == "cuda" and _has_triton(x.device)
    return _compile() if _asked or by_default else COMPOSED


@functools.cache
def _has_triton(device: torch.device) -> bool:
    """Whether torch.compile can write kernels for this GPU: Triton needs one of Volta or later."""
    found = importlib.util.find_spec("triton") is not None
    return found and torch.cuda.get_device_capability(device) >= (7, 0)
