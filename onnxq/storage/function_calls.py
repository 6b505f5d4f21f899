"""Checks a model's functions: one body for each name, and calls that terminate.

Runtimes replace each call with the body of the function. A function that calls another twice, which
calls a third one twice, and so on, is small in a file but huge in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnx import FunctionProto, NodeProto, defs

from onnxq.errors import InvalidModelError, UnsupportedModelError
from onnxq.storage.function_form import all_nodes
from onnxq.storage.importer import as_text

_FIX = "the file is not a valid ONNX model: export it again"

MOST_NODES = 1 << 20
"""Most nodes that all calls of a model may expand to."""

Key = tuple[str, str, str]


def check_functions(functions: Iterable[FunctionProto], nodes: Iterable[NodeProto] = ()) -> None:
    """Raise InvalidModelError on two functions of one name, on recursion, and on ONNX's names.

    Raise UnsupportedModelError if the calls among the `nodes` of the graph expand to too many.

    Inlining a function that calls itself would not end, and of two bodies different tools use
    different ones. A function in ONNX's own domain would give a known operator another meaning.
    """
    calls: dict[Key, list[Key]] = {}
    for function in functions:
        key = _key(function.domain, function.name, function.overload)
        if key in calls:
            raise InvalidModelError(f"function {_words(key)} is defined twice", fix=_FIX)
        if not key[0] and defs.has(key[1]):
            raise InvalidModelError(
                f"function {_words(key)} has the name of an ONNX operator",
                fix="give the function a domain of its own",
            )
        calls[key] = [_key(n.domain, n.op_type, n.overload) for n in all_nodes(function.node)]
    done: dict[Key, int] = {}
    """The number of nodes each function expands to."""
    for root in calls:
        stack, open_ = [(root, iter(calls[root]))], {root}
        while stack:
            key, pending = stack[-1]
            for called in pending:
                if called in open_:
                    raise InvalidModelError(f"function {_words(called)} calls itself", fix=_FIX)
                if called in calls and called not in done:
                    open_.add(called)
                    stack.append((called, iter(calls[called])))
                    break
            else:
                stack.pop()
                open_.discard(key)
                done[key] = min(sum(done.get(c, 1) for c in calls[key]), MOST_NODES)
    if done:
        _check_size(done, nodes)


def _check_size(sizes: Mapping[Key, int], nodes: Iterable[NodeProto]) -> None:
    total = 0
    for node in all_nodes(nodes):
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
