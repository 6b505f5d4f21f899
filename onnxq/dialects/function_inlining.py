"""The user's model-local functions that quantize, inlined at their calls.

Readers see the nodes of graphs. Quantizers inside a function would silently stay in the written
model, so such functions are inlined before anything is read. Others stay functions, and so do
onnxq's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import EncodeError
from onnx import FunctionProto, inliner
from onnx.checker import ValidationError

from onnxq.canonical.fake_quantize import DOMAIN
from onnxq.dialects.quantizing_operators import quantizes
from onnxq.edit import describe
from onnxq.graph import Model, domain_of, from_proto
from onnxq.storage.function_form import all_nodes


def quantizing_functions(model: Model) -> list[FunctionProto]:
    """The functions that contain quantizing operators, or call one that does."""
    others = [f for f in model.functions if f.domain != DOMAIN]
    callers: dict[tuple[str, str], list[tuple[str, str]]] = {}
    waiting: list[tuple[str, str]] = []
    for function in others:
        key = (function.domain, function.name)
        for node in all_nodes(function.node):
            callers.setdefault((node.domain, node.op_type), []).append(key)
            if quantizes(node.domain, node.op_type):
                waiting.append(key)
    found: set[tuple[str, str]] = set()
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += callers.get(key, ())
    return [f for f in others if (f.domain, f.name) in found]


def left_in(model: Model) -> Iterator[str]:
    """The nodes, then the functions of `model` that quantize, as messages name them."""
    yield from (describe(n) for n in model.nodes() if quantizes(domain_of(n), str(n.op)))
    yield from (f"function '{f.domain}::{f.name}'" for f in quantizing_functions(model))


def functions_inlined(model: Model) -> Model:
    """`model`, or a copy without functions that quantize.

    The inliner needs one opset throughout and a model that fits into one protobuf. Other models
    are returned as they are; `quantizing_functions` still finds what is left.
    """
    chosen = quantizing_functions(model)
    if not chosen:
        return model
    try:
        made = inliner.inline_selected_functions(
            model.to_proto(), [(f.domain, f.name) for f in chosen]
        )
    except (RuntimeError, EncodeError, ValueError, ValidationError):
        return model
    twin = from_proto(made)
    twin.origin = model.origin
    names = ", ".join(f"'{f.domain}::{f.name}'" for f in chosen)
    twin.upgrades = [*model.upgrades, f"functions that quantize were inlined: {names}"]
    return twin
