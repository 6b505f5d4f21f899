"""Fully sharded data parallel training (FSDP2) of a prepared model.

torch's `fully_shard` splits parameters over processes and gathers them when a module is called. It
takes no parameters without an axis, as scales are, and the containers of a graph are never called.
So here large layers are sharded one by one and the rest with the model, while the parameters of
quantizers stay whole on every process. Their gradients are averaged in one reduction at the end of
each backward pass, as torch averages those of sharded parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable

from onnxq.errors import OptionError
from onnxq.parsing.argument_types import takes
from torch_bridge.nn.qat import QatLayer
from torch_bridge.state import quantizers

LARGE = 1 << 20
"""Elements of a weight from which its layer is sharded by itself."""


@takes(model=nn.Module)
def fully_shard(model: nn.Module, *, large: int = LARGE, **options: Any) -> nn.Module:
    """Shard a prepared model over the processes of a torch.distributed run, in place.

    Calibrate before or after. `torch.distributed.checkpoint.state_dict` gathers the state.

    Args:
        model: the result of `prepare`, not wrapped, and the same on every process.
        large: elements of a weight from which its layer is sharded by itself: it is gathered when
            it is called, all others when the model is.
        options: those of `torch.distributed.fsdp.fully_shard` (mesh, mp_policy ...).
    """
    from torch.distributed import fsdp  # takes a second to import

    found = quantizers(model)
    if not dist.is_available() or not dist.is_initialized():
        raise OptionError(
            "there is no process group to shard the model over",
            fix="call torch.distributed.init_process_group first, as torchrun's processes do",
        )
    # In this order on every process.
    small = list(dict.fromkeys(p for each in found.values() for p in each.parameters()))
    ignored = {*small, *(options.pop("ignored_params", None) or ())}
    for module in model.modules():
        if isinstance(module, QatLayer) and module.weight.numel() >= large:
            fsdp.fully_shard(module, ignored_params=ignored, **options)
    fsdp.fully_shard(model, ignored_params=ignored, **options)
    mesh = options.get("mesh")
    groups = [None] if mesh is None else [mesh.get_group(axis) for axis in range(mesh.ndim)]
    _Averages(small, groups).watch()
    return model


class _Averages:
    """Averages the gradients of a few small parameters over all processes."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], groups: Iterable[dist.ProcessGroup | None]
    ) -> None:
        self._parameters, self._groups = list(parameters), list(groups)
        self._waiting = False

    def watch(self) -> None:
        """Average after every backward pass from now on."""
        for parameter in (p for p in self._parameters if p.requires_grad):
            parameter.register_post_accumulate_grad_hook(self._plan)  # type: ignore[no-untyped-call]

    def _plan(self, _: Tensor) -> None:
        if not self._waiting:
            self._waiting = True
            Variable._execution_engine.queue_callback(self._reduce)

    def _reduce(self) -> None:
        """Average what has accumulated: gradients of earlier passes are the same everywhere."""
        self._waiting = False
        # A branch may have run on one process only: all reduce the same parameters.
        learning = [p for p in self._parameters if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in learning]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        for group in self._groups:
            dist.all_reduce(flat, dist.ReduceOp.SUM, group)
            flat /= dist.get_world_size(group)
        parts = torch.split(flat, [p.numel() for p in learning])
        for parameter, mean in zip(learning, parts, strict=True):
            parameter.grad = mean.reshape(parameter.shape).clone()
