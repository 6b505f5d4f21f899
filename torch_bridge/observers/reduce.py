"""Sums and maxima over the processes of a torch.distributed run.

Both are the identity in a single process. They are collectives: every process must make the same
calls in the same order, as with the gradients of data-parallel training.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def total(values: Tensor) -> Tensor:
    """The sum of `values` over all processes."""
    return _all_reduce(values, dist.ReduceOp.SUM) if _distributed() else values


def largest(values: Tensor) -> Tensor:
    """The elementwise maximum of `values` over all processes."""
    return _all_reduce(values, dist.ReduceOp.MAX) if _distributed() else values


def _distributed() -> bool:
    # Checked on every call: the process group may be set up after this module is imported.
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _all_reduce(values: Tensor, op: dist.ReduceOp.RedOpType) -> Tensor:
    out = values.clone()  # the reduction writes in place, and the caller may hold a view
    dist.all_reduce(out, op=op)
    return out
