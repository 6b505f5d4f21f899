"""What must hold of a model's functions: one body for each name, and none that calls itself."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import FunctionProto, defs

from onnxq.errors import InvalidModelError
from onnxq.function_form import all_nodes
from onnxq.importer import as_text

_FIX = "the file is not a valid ONNX model: export it again"

Key = tuple[str, str, str]


def check_functions(functions: Iterable[FunctionProto]) -> None:
    """Raise InvalidModelError on two functions of one name, on recursion, and on ONNX's names.

    Inlining a function that calls itself would not end, and of two bodies runtimes and tools take
    a different one. A function in ONNX's own domain would give a known operator another meaning.
    """
    calls: dict[Key, list[Key]] = {}
    for function in functions:
        key = _key(function.domain, function.name, function.overload)
        if key in calls:
            raise InvalidModelError(f"function {_words(key)} is defined twice", fix=_FIX)
        if not key[0] and defs.has(key[1]):
            raise InvalidModelError(
                f"function {_words(key)} has the name of an operator of ONNX",
                fix="give the function a domain of its own",
            )
        calls[key] = [_key(n.domain, n.op_type, n.overload) for n in all_nodes(function.node)]
    done: set[Key] = set()
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
                done.add(key)


def _key(domain: str, name: str, overload: str) -> Key:
    domain, name, overload = map(as_text, (domain, name, overload))
    return "" if domain == "ai.onnx" else domain, name, overload


def _words(key: Key) -> str:
    domain, name, overload = key
    return f"'{domain}::{name}'" + (f" (overload '{overload}')" if overload else "")
