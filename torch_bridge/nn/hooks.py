"""Hooks of a user's modules: moved to the modules that replace them, or named if none does.

The code of a traced container is part of the graph, and nothing calls the container any more. Its
hooks ran while the graph was made: what they computed is in the graph, what they recorded is not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from torch import fx, nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from onnxq.errors import UnsupportedModelError
from torch_bridge.nn.fused import HasBatchNorm

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_DETAILS = (
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_is_full_backward_hook",
)


def keep_hooks(source: nn.Module, made: nn.Module) -> None:
    """Let `made`, which is called instead of `source`, call its hooks."""
    for name in (*_HOOKS, *_DETAILS):
        setattr(made, name, copy.copy(getattr(source, name)))


def drop_hooks(module: nn.Module) -> None:
    """Let neither `module` nor those inside it call hooks."""
    for each in module.modules():
        for name in _HOOKS:
            setattr(each, name, type(getattr(each, name))())


def changed_hooks(model: nn.Module, graph_module: fx.GraphModule) -> Iterator[str]:
    """What becomes of the hooks of `model` in the graph, if it is not what they did."""
    called = [n for n in graph_module.graph.nodes if n.op == "call_module"]
    kept = set(_hooks(graph_module))
    for node in called:
        for module in graph_module.get_submodule(str(node.target)).modules():
            kept.update(_hooks(module))
    lost = [path for path, module in model.named_modules() if not kept.issuperset(_hooks(module))]
    if lost:
        yield (
            f"hooks of {_listed(lost)} are not called: the code is part of the graph, with what "
            "the hooks computed in it. Register them on a layer inside, or keep the module whole "
            "with leaf_modules"
        )
    for path, module in graph_module.named_modules():
        if not isinstance(module, HasBatchNorm):
            continue
        fused = [child for child in (module.bn, module.activation) if child is not None]
        if fused and any(_hooks(module)):
            also = " and ".join(type(child).__name__ for child in fused)
            yield f"hooks of '{path}' see the result after its {also}, which are fused into it"
        if module.bn is not None and any(_hooks(module.bn)):
            yield f"hooks of the batch norm in '{path}' run in training only: then it is folded"


def _hooks(module: nn.Module) -> Iterator[int]:
    """The numbers of its hooks, which copies of them keep."""
    for name in _HOOKS:
        yield from getattr(module, name)


def _listed(paths: list[str]) -> str:
    return " and ".join(f"'{path}'" if path else "the model" for path in paths)


def refuse_weights_of_hooks(model: nn.Module) -> None:
    """Refuse layers whose weight is computed by a hook before each call, of torch's older kind.

    Such a weight is an attribute that changes from call to call: a copy of the model is not
    possible after the first one, and a quantizer of the weight would be overwritten.
    """
    for path, module in model.named_modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm | SpectralNorm):
                name = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
                raise UnsupportedModelError(
                    f"the {hook.name} of '{path}' is computed by torch.nn.utils.{name}, in a hook "
                    "before each call, where it cannot be quantized",
                    fix=f"use torch.nn.utils.parametrizations.{name} instead; for the trained "
                    f"weight alone, torch.nn.utils.remove_{name}(module)",
                )
