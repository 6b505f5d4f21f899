"""One run of a prepared model in torch, with the values that its quantizers read and return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from onnxq.quant.qparams import Array
from torch_bridge.capture.flat_call import FlatCall
from torch_bridge.fake_quant import FakeQuantize
from torch_bridge.state import evaluating


@dataclass
class RecordedRun:
    """Values of one run in eval mode; those of quantizers by the path of their module."""

    outputs: dict[str, Tensor] = field(default_factory=dict)
    """Results of the model, by the names that their structure gives."""
    rounded: dict[str, Tensor | None] = field(default_factory=dict)
    """The tensor that each quantizer rounds; None if it differs from call to call."""
    returned: dict[str, list[Array]] = field(default_factory=dict)
    """The results of each quantizer, one for each call."""


def record(call: FlatCall, *, results: bool = True) -> RecordedRun:
    """Run the call once; without `results` those of the quantizers are not kept."""
    run = RecordedRun()

    def watch(path: str) -> Callable[..., None]:
        def hook(module: FakeQuantize, args: tuple[Tensor, ...], output: Tensor) -> None:
            value = module.to_round(*args)
            known = run.rounded.get(path)
            if path not in run.rounded:
                run.rounded[path] = value
            elif known is not None and not torch.equal(known, value):
                run.rounded[path] = None
            if results:  # copied, since code after it may write into it
                run.returned.setdefault(path, []).append(output.detach().cpu().numpy().copy())

        return hook

    modules = [(p, m) for p, m in call.model.named_modules() if isinstance(m, FakeQuantize)]
    hooks: list[Any] = [m.register_forward_hook(watch(p)) for p, m in modules if m.quantizing]
    try:
        with evaluating(call), torch.no_grad():
            run.outputs = call.outputs()
    finally:
        for hook in hooks:
            hook.remove()
    return run
