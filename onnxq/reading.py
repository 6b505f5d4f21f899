"""Reads a model of any dialect: the entry of all workflows."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_graphsurgeon as gs

from onnxq.dialects.function_inlining import functions_inlined
from onnxq.dialects.quantizing_operators import QDQ, UNREADABLE
from onnxq.graph import Model
from onnxq.pass_ import Trace
from onnxq.pipeline import Observer, Pipeline
from passes.phases import READ

READERS = tuple(step.name for step in READ)
"""The passes that read, by name, in the order they run."""

_DIALECTS = {step.name: step.dialect for step in READ}


def canonical(
    model: Model, *observers: Observer, in_place: bool = False
) -> tuple[Model, tuple[Trace, ...]]:
    """`model` with every dialect read into FakeQuantize nodes.

    `in_place` is for a model that the caller no longer needs: it is not copied.
    """
    readable = readable_form(model)
    result = Pipeline(*READ).run(readable, *observers, in_place=in_place or readable is not model)
    return result.model, result.traces


def readable_form(model: Model) -> Model:
    """`model`, or a copy in which all constants and all quantizing nodes are visible to readers."""
    return functions_inlined(constants_frozen(model))


def constants_frozen(model: Model) -> Model:
    """`model`, or a copy in which initializers listed as inputs are constants.

    Some exporters list every initializer as an input, which lets the caller replace it. A deployed
    model has its weights in it.
    """
    listed = [t.name for t in model.graph.inputs if isinstance(t, gs.Constant)]
    if not listed or model.ir_version < 4:
        return model
    twin = model.clone()
    for tensor in twin.graph.inputs:
        if isinstance(tensor, gs.Constant):
            tensor.overridable = False
    twin.graph.inputs = [t for t in twin.graph.inputs if not isinstance(t, gs.Constant)]
    twin.upgrades.append(
        f"{len(listed)} initializers ('{listed[0]}' first) were listed as graph inputs; they are "
        "constants now"
    )
    return twin


def dialects_of(ops: Sequence[str], traces: Sequence[Trace]) -> list[str]:
    """The dialects of a model, from its operators and what the readers did to it."""
    names = ["canonical"] if any(op.startswith("onnxq::FakeQuantize") for op in ops) else []
    for trace in traces:
        dialect = _DIALECTS.get(trace.name)
        if not dialect or not (trace.rewrites or trace.skips):
            continue
        if trace.name == "read-qdq":
            # Readers before it write Q/DQ of their own.
            owners = {op.rpartition("::")[0]: None for op in QDQ if op in ops}
            names += [f"{dialect} ({owner})" if owner else dialect for owner in owners]
        else:
            names.append(dialect)
    names += [f"{kind.name} (not readable)" for kind in UNREADABLE if kind.ops & set(ops)]
    return names
