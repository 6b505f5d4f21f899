"""Finds buffers that a model's code writes into while it is traced.

torch.fx has placeholders for inputs only. What code does with buffers alone (`self.steps.add_(1)`)
runs while it is traced and is not in the graph: the trace would change the buffer, and no call
after it. torch.export has what is written in place, but no buffer that becomes another tensor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

_COUNTER = "num_batches_tracked"


class _Known(NamedTuple):
    """A buffer before a trace."""

    tensor: Tensor
    version: int
    values: Tensor


class WrittenBuffers:
    """The buffers of a model before a trace, to compare them with those after it."""

    def __init__(self, root: nn.Module) -> None:
        self._root = root
        self._before = {
            name: _Known(tensor, tensor._version, tensor.detach().clone())
            for name, tensor in root.named_buffers()
            if not tensor.is_inference() and not _only_counts(root, name)
        }

    def restore(self) -> list[str]:
        """Give back their values to the buffers that were written into, and return their names."""
        after = dict(self._root.named_buffers())
        found = []
        for name, (tensor, version, values) in self._before.items():
            if tensor._version != version:
                with torch.no_grad():
                    tensor.copy_(values)
                found.append(name)
            elif is_replaced(tensor, after.get(name)):
                found.append(name)
        return found


def is_replaced(buffer: Tensor, now: Any) -> bool:
    """Whether code gave a buffer other values, as a new tensor.

    One of another size is no state, but a table that was made for the sizes of the call.
    """
    if now is None or now is buffer:
        return False
    if not isinstance(now, Tensor):  # a placeholder
        return True
    return now.shape == buffer.shape and now.dtype == buffer.dtype


def _only_counts(root: nn.Module, name: str) -> bool:
    """Whether a buffer is the counter of a batch norm whose momentum does not depend on it."""
    owner, _, last = name.rpartition(".")
    module = root.get_submodule(owner)
    return last == _COUNTER and isinstance(module, _NormBase) and module.momentum is not None
