"""The functions that operators of torch.export come from: `aten.add.Tensor` is torch.add again.

Rules of placement, fusion and selectors know functions of torch and methods of tensors. Most have
the operator's name and take its arguments; `_REWRITTEN` holds those that do not, and operators that
only torch.export needs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

_TO_THE_END = 2**63 - 1

_SAME_ARGUMENTS: dict[str, Callable[..., Any]] = {
    name: getattr(F, name)
    for name in [
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "elu",
        "gelu",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "leaky_relu",
        "linear",
        "pad",
        "relu",
        "relu6",
        "silu",
        "softplus",
        "prelu",
        "pixel_shuffle",
        "pixel_unshuffle",
    ]
} | {"einsum": torch.einsum, "split": torch.split, "split_with_sizes": torch.split}
"""Functions of torch.nn.functional that take the arguments of the operator in the same order."""

CHECKS = frozenset(
    {
        "_assert_tensor_metadata",
        "_assert_scalar",
        "_assert_async",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
        "_check_is_size",
    }
)
"""Operators that compute nothing."""


def call(graph: fx.Graph, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Add the call of an operator to `graph`, and return its node or the value it stands for."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return graph.call_function(target, args, kwargs)
    name = target.overloadpacket.__name__
    if name in _REWRITTEN:
        return _REWRITTEN[name](graph, *args, **kwargs)
    function = _SAME_ARGUMENTS.get(name)
    if function is None:
        found = (getattr(home, name, None) for home in (torch, torch._C._nn))
        function = next((f for f in found if isinstance(f, BuiltinFunctionType)), None)
    if function is not None:
        return graph.call_function(function, args, kwargs)
    if hasattr(Tensor, name) and args and isinstance(args[0], fx.Node):
        return graph.call_method(name, args, kwargs)
    return graph.call_function(target, args, kwargs)


def without_effect(target: Any) -> Any:
    """The operator that computes the same as one in place; that one itself if there is none."""
    packet = getattr(torch.ops.aten, target.overloadpacket.__name__.removesuffix("_"), None)
    return getattr(packet, target._overloadname, target)


def makes_a_new_tensor(target: Any) -> bool:
    """Whether the result of an operator shares no memory with what it reads."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    returns_itself = target.overloadpacket.__name__ == "dropout"  # in evaluation
    return not returns_itself and all(r.alias_info is None for r in target._schema.returns)


def _slice(
    graph: fx.Graph, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    first = None if start == 0 and isinstance(start, int) else start
    last = None if isinstance(end, int) and end == _TO_THE_END else end
    if first is None and last is None and step == 1:
        return x
    if dim < 0:
        return graph.call_function(torch.ops.aten.slice.Tensor, (x, dim, start, end, step))
    steps = None if step == 1 else step
    index = (*(slice(None),) * dim, slice(first, last, steps))
    return graph.call_function(operator.getitem, (x, index))


def _index(graph: fx.Graph, x: Any, indices: list[Any]) -> Any:
    given = tuple(slice(None) if i is None else i for i in indices)
    return graph.call_function(operator.getitem, (x, given))


def _embedding(
    graph: fx.Graph,
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    given: dict[str, Any] = {
        "padding_idx": None if padding_idx == -1 else padding_idx,
        "scale_grad_by_freq": scale_grad_by_freq,
        "sparse": sparse,
    }
    return graph.call_function(F.embedding, (indices, weight), given)


def _upsampled(mode: str) -> Callable[..., Any]:
    def rewrite(graph: fx.Graph, x: Any, size: Any, *rest: Any) -> Any:
        *aligned, scales = rest
        given = {"mode": mode} | ({"align_corners": aligned[0]} if aligned else {})
        given |= {"size": size} if scales is None else {"scale_factor": scales}
        return graph.call_function(F.interpolate, (x,), given)

    return rewrite


def _batch_norm(graph: fx.Graph, x: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    mean, variance, training, momentum, eps, _ = rest
    args = (x, mean, variance, weight, bias, training, momentum, eps)
    return graph.call_function(F.batch_norm, args)


def _attention(
    graph: fx.Graph,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Any:
    """With all arguments: that of dropout is left out in evaluation, if it is 0 there."""
    args = (query, key, value, attn_mask, dropout_p, is_causal)
    return graph.call_function(F.scaled_dot_product_attention, args, options)


def _to(graph: fx.Graph, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The method takes no layout and no pinned memory."""
    given = {name: kwargs[name] for name in ("dtype", "device", "copy") if kwargs.get(name)}
    return graph.call_method("to", (x, *args), given)


def _view(graph: fx.Graph, x: Any, size: Any) -> Any:
    """Reshape: strides differ between modes, and a layer may return others when quantized."""
    if isinstance(size, torch.dtype):
        return graph.call_method("view", (x, size))
    return graph.call_function(torch.reshape, (x, size))


_REWRITTEN: dict[str, Callable[..., Any]] = {
    "sym_size": lambda graph, x, dim: graph.call_method("size", (x, dim)),
    "slice": _slice,
    "index": _index,
    "embedding": _embedding,
    "batch_norm": _batch_norm,
    "scaled_dot_product_attention": _attention,
    "to": _to,
    "view": _view,
    "_to_copy": _to,
    "rsub": lambda graph, x, other, alpha=1: graph.call_function(
        operator.sub, (other, x if alpha == 1 else graph.call_function(torch.mul, (x, alpha)))
    ),
    # A tensor written in the code; it is copied, since what follows may change it in place.
    "lift_fresh_copy": lambda graph, x: graph.call_method("clone", (x,)),
    "detach_": lambda graph, x: x,
    "upsample_nearest1d": _upsampled("nearest"),
    "upsample_nearest2d": _upsampled("nearest"),
    "upsample_nearest3d": _upsampled("nearest"),
    "upsample_linear1d": _upsampled("linear"),
    "upsample_bilinear2d": _upsampled("bilinear"),
    "upsample_trilinear3d": _upsampled("trilinear"),
    "upsample_bicubic2d": _upsampled("bicubic"),
}
