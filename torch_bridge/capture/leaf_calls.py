"""Calls of whole modules as single operators, while torch.export runs a model.

torch.export looks into every module and keeps only its operators. A module whose `forward` is
replaced by `LeafCalls.forward` calls one operator instead:

    onnxq_capture::leaf(tensors of the call, sizes of the call, number of the call) -> tensors

The number leads back to the record of the call: the module's path, its arguments and its result.
The operator is never computed; torch.export asks it for shapes, and the module itself answers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import SymInt, Tensor, nn
from torch.utils import _pytree as pytree

# Kept: its end would remove the operator.
_LIBRARY = torch.library.Library("onnxq_capture", "DEF")  # type: ignore[no-untyped-call]
_SIGNATURE = "leaf(Tensor[] tensors, SymInt[] sizes, int call) -> Tensor[]"
_LIBRARY.define(_SIGNATURE)  # type: ignore[no-untyped-call]
LEAF = torch.ops.onnxq_capture.leaf.default
"""The operator."""

_numbers = itertools.count()
_running: dict[int, Callable[[Sequence[Tensor], Sequence[int]], list[Tensor]]] = {}


@torch.library.register_fake("onnxq_capture::leaf", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _shapes(tensors: Sequence[Tensor], sizes: Sequence[int], call: int) -> list[Tensor]:
    return _running[call](tensors, sizes)


@dataclass
class LeafCall:
    """One call of a module."""

    path: str
    arguments: list[Any]
    """The leaves of (args, kwargs); a tensor or a size stands for the next one of the operator."""
    structure: pytree.TreeSpec
    result: Any = None


class LeafCalls:
    """The calls of leaf modules during one export, by number."""

    def __init__(self) -> None:
        self.made: dict[int, LeafCall] = {}

    def __enter__(self) -> LeafCalls:
        return self

    def __exit__(self, *_: object) -> None:
        for number in self.made:
            _running.pop(number, None)

    def replace(self, path: str, module: nn.Module) -> None:
        """Let calls of `module` be single operators; it must be a copy made for the export."""
        compute = getattr(module, "result_shapes", module.forward)

        @functools.wraps(module.forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            leaves, structure = pytree.tree_flatten((args, kwargs))
            call = LeafCall(path, leaves, structure)
            number = next(_numbers)
            self.made[number] = call
            _running[number] = functools.partial(_result_shapes, call, compute)
            results = iter(LEAF(_of(Tensor, leaves), _of(SymInt, leaves), number))
            return pytree.tree_map_only(Tensor, lambda _: next(results), call.result)

        module.forward = forward


def _result_shapes(
    call: LeafCall, compute: Callable[..., Any], tensors: Sequence[Tensor], sizes: Sequence[int]
) -> list[Tensor]:
    args, kwargs = with_values(call, tensors, sizes)
    call.result = compute(*args, **kwargs)
    # An operator may not return its arguments, as nn.Identity does.
    return [tensor.detach().clone() for tensor in _of(Tensor, pytree.tree_leaves(call.result))]


def with_values(call: LeafCall, tensors: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The arguments of a call, (args, kwargs), with other tensors and sizes."""
    left = {Tensor: iter(tensors), SymInt: iter(sizes)}
    kinds = (next((k for k in left if isinstance(leaf, k)), None) for leaf in call.arguments)
    leaves = [
        leaf if kind is None else next(left[kind])
        for leaf, kind in zip(call.arguments, kinds, strict=True)
    ]
    return pytree.tree_unflatten(leaves, call.structure)


def _of(kind: type, values: Sequence[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, kind)]
