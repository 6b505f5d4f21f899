"""Checks a model's functions: one body for each name, and calls that terminate.

Runtimes replace each call with the body of the function. A function that calls another twice, which
calls a third one twice, and so on, is small in a file but huge in memory.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable

from onnx import FunctionProto, NodeProto, defs

from onnxq.errors import InvalidModelError, UnsupportedModelError
from onnxq.storage.function_form import all_nodes
from onnxq.storage.importer import as_text

MOST_NODES = 1 << 20
"""Most nodes that all calls of a model may expand to."""

Key = tuple[str, str, str]


def check_functions(functions: Iterable[FunctionProto], nodes: Iterable[NodeProto] = ()) -> None:
    """Raise InvalidModelError on duplicate functions, on recursion, and on names of ONNX operators.

    Raise UnsupportedModelError if the calls among the `nodes` of the graph expand to too many.

    Inlining a function that calls itself would not end, and tools disagree on which of two bodies
    to use. A function in ONNX's own domain would give a known operator another meaning.
    """
    calls: dict[Key, list[Key]] = {}
    for function in functions:
        key = _key(function.domain, function.name, function.overload)
        if key in calls:
            raise InvalidModelError(f"function {_words(key)} is defined twice")
        if not key[0] and defs.has(key[1]):
            raise InvalidModelError(
                f"function {_words(key)} has the name of an ONNX operator",
                fix="give the function a domain of its own",
            )
        calls[key] = [_key(n.domain, n.op_type, n.overload) for n in all_nodes(function.node)]
    needs = {key: [c for c in called if c in calls] for key, called in calls.items()}
    sizes: dict[Key, int] = {}
    """The number of nodes each function expands to."""
    try:
        for key in graphlib.TopologicalSorter(needs).static_order():
            sizes[key] = min(sum(sizes.get(c, 1) for c in calls[key]), MOST_NODES)
    except graphlib.CycleError as error:
        raise InvalidModelError(f"function {_words(error.args[1][0])} calls itself") from error
    total = 0
    for node in all_nodes(nodes) if sizes else ():
        key = _key(node.domain, node.op_type, node.overload)
        total += sizes.get(key, 0)
        if total >= MOST_NODES:
            raise UnsupportedModelError(
                f"function {_words(key)} and those it calls expand to too many nodes: the limit "
                f"for a model is {MOST_NODES:,}",
                fix="export the model without nested functions",
            )


def _key(domain: str, name: str, overload: str) -> Key:
    domain, name, overload = map(as_text, (domain, name, overload))
    return "" if domain == "ai.onnx" else domain, name, overload


def _words(key: Key) -> str:
    domain, name, overload = key
    return f"'{domain}::{name}'" + (f" (overload '{overload}')" if overload else "")
