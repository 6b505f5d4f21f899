"""Graphs of single submodules, for a model whose own code no tracer can follow.

A branch on a value in the model's forward ends every trace of the whole, but not one of the blocks
that it calls. Each of the largest submodules that can be captured, by FX or torch.export, gets a
graph of its own, from a call that a run of the example makes.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from onnxq.errors import OnnxqError
from torch_bridge.capture import ladder
from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.quantized_graph import QuantizedGraph
from torch_bridge.capture.tracing import TraceOptions


class Block(NamedTuple):
    """A submodule and its graph."""

    path: str
    module: nn.Module
    call: ExampleCall
    captured: ladder.Captured

    @property
    def graph_module(self) -> QuantizedGraph:
        """The graph."""
        assert self.captured.graph_module is not None
        return self.captured.graph_module


def capture_blocks(
    model: nn.Module,
    call: ExampleCall,
    options: TraceOptions,
    within: Collection[str],
    whole: frozenset[str],
) -> list[Block]:
    """The largest submodules that have a graph.

    Args:
        model: the model.
        call: an example of a call.
        options: the user's options for tracers.
        within: paths of the modules whose code cannot be traced; '' is the model itself.
        whole: paths of modules that are left alone.
    """
    if not within:
        return []
    calls: dict[nn.Module, list[tuple[Any, Any]]] = defaultdict(list)

    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        calls[module].append((args, kwargs))

    watched = [module for _, module in _containers(model, "", options)]
    if not watched:
        return []
    hooks = [each.register_forward_pre_hook(note, with_kwargs=True) for each in watched]
    try:
        call.run(model)
    finally:
        for hook in hooks:
            hook.remove()
    found = (_blocks(model.get_submodule(p), p, options, calls, whole) for p in within)
    return list(itertools.chain.from_iterable(found))


def _blocks(
    model: nn.Module,
    path: str,
    options: TraceOptions,
    calls: dict[nn.Module, list[tuple[Any, Any]]],
    whole: frozenset[str],
) -> Iterator[Block]:
    for at, module in _children(model, path, options):
        if at in whole or at in options.leaf_paths:
            continue
        found = None
        if calls[module] and len(set(map(_kind_of_call, calls[module]))) == 1:
            args, kwargs = calls[module][0]
            inner = replace(options, leaf_paths=_below(at, options.leaf_paths), open_axes={})
            block_call = ExampleCall(module, args, kwargs)
            try:
                found = ladder.capture(module, block_call, inner)
            except OnnxqError:  # then the modules inside are tried one by one
                found = None
        if found is not None and found.graph_module is not None and not found.leaves:
            yield Block(at, module, block_call, found)
        else:
            yield from _blocks(module, at, options, calls, whole)


def _containers(
    model: nn.Module, path: str, options: TraceOptions
) -> Iterator[tuple[str, nn.Module]]:
    for at, module in _children(model, path, options):
        yield at, module
        yield from _containers(module, at, options)


def _children(
    model: nn.Module, path: str, options: TraceOptions
) -> Iterator[tuple[str, nn.Module]]:
    """The modules right below that are made of others, each once."""
    for name, module in model.named_children():
        if any(True for _ in module.children()) and not options.takes_as_leaf(module):
            yield f"{path}.{name}".lstrip("."), module


def _below(path: str, paths: frozenset[str]) -> frozenset[str]:
    return frozenset(p.removeprefix(f"{path}.") for p in paths if p.startswith(f"{path}."))


def _kind_of_call(call: tuple[Any, Any]) -> str:
    """What must be alike in two calls for one graph to serve both."""
    leaves, structure = pytree.tree_flatten(call)
    told = [tuple(v.shape) if isinstance(v, Tensor) else v for v in leaves]
    return f"{structure} {told}"
