"""The functions of the domain `onnxq` travel with the models that call them.

A model in memory holds the calls only. Writing adds the function each call needs, made for the
opset of the model; reading takes them out again, so that passes may raise the opset in between.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

import onnx_graphsurgeon as gs
from onnx import FunctionProto

from onnxq import fake_quantize, fake_quantize_log, upsample
from onnxq.fake_quantize import DOMAIN
from onnxq.graph import Model

_MIN_IR = 8  # model-local functions


class _Local(NamedTuple):
    """One function: its body for an opset, and the opset that some calls need."""

    body: Callable[[int], FunctionProto]
    needed_opset: Callable[[list[gs.Node]], int]


_FUNCTIONS = {
    fake_quantize.OP: _Local(fake_quantize.function, fake_quantize.needed_opset),
    fake_quantize_log.OP: _Local(fake_quantize_log.function, fake_quantize_log.needed_opset),
    upsample.OP: _Local(upsample.function, upsample.needed_opset),
}


def with_functions(model: Model) -> Model:
    """`model` itself, or a copy that carries the functions, its opset raised as far as needed."""
    called = _called(model)
    if not called:
        return model
    twin = model.clone()
    need = max(_FUNCTIONS[op].needed_opset(nodes) for op, nodes in called.items())
    twin.require_opset(need, "a model-local function needs it")
    twin.require_ir(_MIN_IR, "the canonical form is a model-local function")
    twin.functions = [f for f in twin.functions if not _is_one_of(f, called)]
    twin.functions += [_FUNCTIONS[op].body(twin.opset) for op in called]
    twin.opsets[DOMAIN] = 1
    return twin


def take_functions(model: Model) -> None:
    """Forget the functions of a model just read: `with_functions` adds fresh ones.

    One stays where nothing would add it again: in a model without nodes that call it, and where
    other functions do.
    """
    inner = {n.op_type for f in model.functions for n in f.node if n.domain == DOMAIN}
    taken = _called(model).keys() - inner
    model.functions = [f for f in model.functions if not _is_one_of(f, taken)]
    if taken and not any(f.domain == DOMAIN for f in model.functions):
        model.opsets.pop(DOMAIN, None)


def fresh(function: FunctionProto, opset: int) -> FunctionProto | None:
    """The body for `opset` of a function of ours; None for functions of others."""
    known = _FUNCTIONS.get(function.name) if function.domain == DOMAIN else None
    return None if known is None else known.body(opset)


def _called(model: Model) -> dict[str, list[gs.Node]]:
    found = {op: model.nodes(f"{DOMAIN}::{op}") for op in _FUNCTIONS}
    return {op: nodes for op, nodes in found.items() if nodes}


def _is_one_of(candidate: FunctionProto, ops: Container[str]) -> bool:
    return candidate.domain == DOMAIN and candidate.name in ops
