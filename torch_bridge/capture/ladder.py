"""Captures a model as a graph, by the first way that can.

    fx        torch.fx runs the code with placeholders: fast, knows no shapes
    export    torch.export runs it with shapes, and the result is lifted back to modules
    modules   no graph: layers with weights are quantized one by one, with their inputs

'auto' takes FX if it traces everything, else torch.export if that traces more, else what FX has,
else modules. All graphs are of the same kind: calls of the model's own modules, and functions.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import fx, nn

from onnxq.errors import OptionError, UnsupportedModelError, near_matches
from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.export_tracing import export_trace
from torch_bridge.capture.flat_call import leaves
from torch_bridge.capture.quantized_graph import QuantizedGraph
from torch_bridge.capture.report import Leaf
from torch_bridge.capture.tracing import COST, Traced, TraceOptions, in_one_line, trace
from torch_bridge.capture.value_types import mark_values
from torch_bridge.capture.written_views import write_as_functions

Rung = Literal["fx", "export", "modules"]
Asked = Literal["auto", "fx", "export", "modules"]


class Captured(NamedTuple):
    """A graph, or None if the model has none; how it was made, and what it lacks."""

    graph_module: QuantizedGraph | None
    rung: Rung
    reason: str
    """Why not by an earlier way; '' if there was none."""
    leaves: list[Leaf]
    cautions: list[str]


def capture(
    model: nn.Module, call: ExampleCall, options: TraceOptions, asked: str = "auto"
) -> Captured:
    """The graph of `model` for calls like `call`, its values marked; `model` is not changed."""
    if asked not in get_args(Asked):
        raise OptionError(
            f"capture='{asked}' is not a way to capture a model",
            fix=near_matches(asked, get_args(Asked)),
        )
    if asked == "modules":
        call.result(model)
        return Captured(None, "modules", "asked for", [], [])
    of_fx = options.concrete_args is not None or options.tracer is not None
    if asked == "export":
        if of_fx:
            raise OptionError(
                "concrete_args and tracer are options of torch.fx, and capture='export' was given",
                fix="leave them out, or pass capture='fx'",
            )
        return _by_export(model, call, options)
    traced = _marked(_by_fx(model, call, options), model, call, asked)
    reason = _incomplete(traced, options)
    if asked == "auto" and reason and not of_fx:
        try:
            found = _by_export(model, call, options)
        except UnsupportedModelError as error:
            reason += f"; {error.what}"
        else:
            if traced.graph_module is None or len(found.leaves) < max(len(traced.leaves), 1):
                return found._replace(reason=reason)
    rung: Rung = "modules" if traced.graph_module is None else "fx"
    return Captured(traced.graph_module, rung, reason, traced.leaves, list(traced.cautions))


def _by_fx(model: nn.Module, call: ExampleCall, options: TraceOptions) -> Traced:
    """A model that cannot be traced as a whole runs before it is traced again.

    A module may become traceable once its first call has filled its caches.
    """
    traced = trace(model, call, options)
    if traced.leaves:
        call.result(model)
        traced = trace(model, call, options)
    return traced


def _marked(traced: Traced, model: nn.Module, call: ExampleCall, asked: str) -> Traced:
    """The graph with its values marked by a run; none if it fails where the model does not.

    Code that asks for the type of a value takes the wrong branch when it is given a placeholder.
    """
    if traced.graph_module is None:
        return traced
    try:
        write_as_functions(traced.graph_module, call)
        mark_values(traced.graph_module, call)
    except Exception as error:
        call.run(model)  # raises an error of its own if the example is wrong
        if asked != "auto":
            raise
        return Traced(None, [Leaf("", f"its graph fails: {in_one_line(error)}", COST)])
    return traced


def _incomplete(traced: Traced, options: TraceOptions) -> str:
    """What FX could not trace; '' if the graph contains every function of the model."""
    if traced.leaves:
        first = traced.leaves[0]
        return f"FX cannot trace {first.where} ({first.reason})"
    assert traced.graph_module is not None
    for node in traced.graph_module.graph.nodes:
        if node.op == "call_module" and node.target not in options.leaf_paths:
            module = traced.graph_module.get_submodule(str(node.target))
            known = isinstance(module, options.leaf_types) or not any(module.children())
            if not known and any(True for _ in module.parameters()):
                return f"FX does not look into '{node.target}', a {type(module).__name__} of torch"
        elif _hides_a_weight(node):
            return f"FX does not look into {node.name}, a function that was marked by fx.wrap"
    return ""


def _hides_a_weight(node: fx.Node) -> bool:
    """Whether `node` calls a function, not of torch, that takes a parameter."""
    home = (getattr(node.target, "__module__", None) or "torch").partition(".")[0]
    foreign = home not in ("torch", "_operator", "builtins", "math")
    reads = any(n.op == "get_attr" for n in node.all_input_nodes)
    return node.op == "call_function" and foreign and reads


def _by_export(model: nn.Module, call: ExampleCall, options: TraceOptions) -> Captured:
    expected = call.result(model)
    traced = export_trace(model, call.with_two_rows(model), options)
    if traced.graph_module is None:
        raise UnsupportedModelError(
            f"torch.export cannot capture {type(model).__name__}: {traced.leaves[0].reason}",
            fix="pass capture='auto', which then quantizes module by module",
        )
    write_as_functions(traced.graph_module, call)
    if wrong := _difference(traced.graph_module, call, expected):
        raise UnsupportedModelError(
            f"the graph that torch.export makes of {type(model).__name__} {wrong}",
            fix="pass capture='auto', which then quantizes module by module",
        )
    mark_values(traced.graph_module, call)
    return Captured(traced.graph_module, "export", "", traced.leaves, list(traced.cautions))


def _difference(graph_module: QuantizedGraph, call: ExampleCall, expected: Any) -> str:
    """What a graph does otherwise than its model, whose result is `expected`; '' if nothing."""
    try:
        found = dict(leaves(call.run(graph_module)))
    except OptionError as error:
        return error.what
    for path, wanted in leaves(expected):
        got = found.get(path, wanted)  # a caution tells which are not returned
        if wanted.is_floating_point() and not torch.allclose(wanted, got, 1e-3, 1e-4, True):
            return f"computes another {'.'.join(path) or 'result'} than the model"
    return ""
