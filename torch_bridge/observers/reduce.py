"""Sums, maxima and values of all processes of a torch.distributed run.

Sums and maxima are the identity in a single process. All are collectives: every process must make
the same calls in the same order, as with the gradients of data-parallel training.
"""

from __future__ import annotations

from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def total(values: Tensor) -> Tensor:
    """The sum of `values` over all processes."""
    return _all_reduce(values, dist.ReduceOp.SUM) if _distributed() else values


def largest(values: Tensor) -> Tensor:
    """The elementwise maximum of `values` over all processes."""
    return _all_reduce(values, dist.ReduceOp.MAX) if _distributed() else values


def gathered(value: T) -> list[T]:
    """The `value` of every process, in the same order on all of them."""
    if not _distributed():
        return [value]
    found: list[T | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return [each for each in found if each is not None]


def _distributed() -> bool:
    # Checked on every call: the process group may be set up after this module is imported.
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _all_reduce(values: Tensor, op: dist.ReduceOp.RedOpType) -> Tensor:
    out = values.clone()  # the reduction writes in place, and the caller may hold a view
    dist.all_reduce(out, op=op)
    return out
