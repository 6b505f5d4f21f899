"""The functions of the domain `onnxq` travel with the models that call them.

A model in memory holds the calls only. Writing adds the function each call needs, made for the
opset of the model; reading takes them out again, so that passes may raise the opset in between.

A file may bring a body of its own under one of these names, and then that body is what its calls
compute. So only bodies that onnxq wrote are taken out. Others move to a domain of their own
(`FOREIGN`) together with their calls: they are functions of the user's like any other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import onnx_graphsurgeon as gs
from onnx import FunctionProto, NodeProto, helper

from onnxq.canonical import fake_quantize, fake_quantize_log, upsample
from onnxq.canonical.fake_quantize import DOMAIN
from onnxq.canonical.node_form import NodeForm, call_form
from onnxq.errors import UnsupportedModelError, near_matches
from onnxq.graph import MAX_OPSET, Model
from onnxq.graph.hooks import HOOKS
from onnxq.storage.exporter import describe
from onnxq.storage.function_form import all_nodes, form_of

FOREIGN = "foreign.onnxq"
"""Domain of functions named like onnxq's own that onnxq did not write."""
VERSION = 1
"""Of the domain: what files import."""

_MIN_IR = 8  # model-local functions


class _Local(NamedTuple):
    """One function: its body for an opset, all it ever had, the opset that some calls need."""

    body: Callable[[int], FunctionProto]
    written: Callable[[int], Iterable[FunctionProto]]
    needed_opset: Callable[[list[gs.Node]], int]


_FUNCTIONS = {
    fake_quantize.OP: _Local(
        fake_quantize.function, fake_quantize.written_bodies, fake_quantize.needed_opset
    ),
    fake_quantize_log.OP: _Local(
        fake_quantize_log.function,
        lambda opset: (fake_quantize_log.function(opset),),
        fake_quantize_log.needed_opset,
    ),
    upsample.OP: _Local(
        upsample.function, lambda opset: (upsample.function(opset),), upsample.needed_opset
    ),
}


def with_functions(model: Model) -> Model:
    """`model` itself, or one that carries the functions, its opset raised as far as needed.

    It is there to be written: it shares the graph of `model` unless raising the opset changes it.
    """
    called = _called(model)
    if not called:
        return model
    need = max(_FUNCTIONS[op].needed_opset(nodes) for op, nodes in called.items())
    fits = model.opset >= need and model.ir_version >= _MIN_IR
    twin = model.alias() if fits else model.clone()
    twin.require_opset(need, "a model-local function needs it")
    twin.require_ir(_MIN_IR, "the canonical form is a model-local function")
    twin.functions = [f for f in twin.functions if not _is_one_of(f, called)]
    twin.functions += [_FUNCTIONS[op].body(twin.opset) for op in called]
    twin.opsets[DOMAIN] = VERSION
    return twin


def take_functions(model: Model) -> None:
    """Forget the functions of a model just read: `with_functions` adds fresh ones.

    One stays where nothing would add it again: in a model without nodes that call it, and where
    other functions do. Bodies that onnxq did not write stay, as functions of the user's.
    """
    _set_foreign_apart(model)
    _check_calls(model)
    inner = {n.op_type for f in model.functions for n in all_nodes(f.node) if n.domain == DOMAIN}
    taken = _called(model).keys() - inner
    model.functions = [f for f in model.functions if not _is_one_of(f, taken)]
    if taken and not any(f.domain == DOMAIN for f in model.functions):
        model.opsets.pop(DOMAIN, None)


@functools.cache
def own_forms() -> Mapping[str, NodeForm]:
    """What calls of each function must have."""
    return {op: call_form(local.body(MAX_OPSET)) for op, local in _FUNCTIONS.items()}


def fresh(function: FunctionProto, opset: int) -> FunctionProto | None:
    """The body for `opset` of a function of ours; None for functions of others."""
    known = _FUNCTIONS.get(function.name) if function.domain == DOMAIN else None
    return None if known is None else known.body(opset)


def is_ours(function: FunctionProto) -> bool:
    """Whether onnxq wrote this function, in this version or an earlier one."""
    if function.domain != DOMAIN or function.name not in _FUNCTIONS or function.overload:
        return False
    versions = {e.version for e in function.opset_import if e.domain in ("", "ai.onnx")}
    if len(versions) != 1:
        return False
    return form_of(function) in _forms(function.name, versions.pop() >= 21)


@functools.cache
def _forms(name: str, blocks: bool) -> frozenset[str | None]:
    """The forms of a function in all opsets that have blocks, or in all that have none."""
    return frozenset(form_of(body) for body in _FUNCTIONS[name].written(21 if blocks else 20))


# -- what files may hold ------------------------------------------------------------------------


def _set_foreign_apart(model: Model) -> None:
    """Move functions of the domain that onnxq did not write, and their calls, to another domain."""
    foreign = [f for f in model.functions if f.domain == DOMAIN and not is_ours(f)]
    if not foreign:
        return
    taken = {f.domain for f in model.functions}
    domain = next(d for d in _numbered(FOREIGN) if d not in taken)
    keys = {(f.name, f.overload) for f in foreign}
    for node in model.nodes_of_other_domains():
        if node.domain == DOMAIN and (node.op, node.source.overload) in keys:
            node.domain = domain
    moved = {id(f) for f in foreign}
    model.functions = [_apart(f, id(f) in moved, keys, domain) for f in model.functions]
    model.opsets[domain] = VERSION
    names = ", ".join(f"'{DOMAIN}::{f.name}'" for f in foreign)
    model.upgrades.append(
        f"{names}: the body in the file was not written by onnxq. It is read as an ordinary "
        f"function, of domain '{domain}'"
    )


def _numbered(base: str) -> Iterator[str]:
    yield base
    number = 1
    while True:
        number += 1
        yield f"{base}{number}"


def _apart(
    function: FunctionProto, moves: bool, keys: Container[tuple[str, str]], domain: str
) -> FunctionProto:
    """`function`, or a copy that lies in the other domain, or calls what lies there."""
    twin = FunctionProto()
    twin.CopyFrom(function)
    calls = [n for n in all_nodes(twin.node) if _key(n) in keys and n.domain == DOMAIN]
    if not moves and not calls:
        return function
    if moves:
        twin.domain = domain
    for node in calls:
        node.domain = domain
    if calls and not any(e.domain == domain for e in twin.opset_import):
        twin.opset_import.append(helper.make_opsetid(domain, VERSION))
    return twin


def _key(node: NodeProto) -> tuple[str, str]:
    return node.op_type, node.overload


def _check_calls(model: Model) -> None:
    """Refuse calls that mean nothing onnxq knows: of an unknown version, overload or name."""
    held = {(f.name, f.overload) for f in model.functions if f.domain == DOMAIN}
    version = model.opsets.get(DOMAIN, VERSION)
    for node in model.nodes_of_other_domains():
        if node.domain != DOMAIN or (node.op, overload := node.source.overload) in held:
            continue
        if overload or node.op not in _FUNCTIONS:
            which = f"'{DOMAIN}::{node.op}'" + (f" (overload '{overload}')" if overload else "")
            raise UnsupportedModelError(
                f"node {describe(node)} calls {which}, which is neither in the file nor in onnxq",
                fix=f"store the function in the file; {near_matches(node.op, _FUNCTIONS)}",
            )
        if version != VERSION:
            raise UnsupportedModelError(
                f"node {describe(node)} is of version {version} of domain '{DOMAIN}', but the "
                f"file lacks its function; this onnxq knows version {VERSION}",
                fix="read the file with the onnxq that wrote it",
            )


def _called(model: Model) -> dict[str, list[gs.Node]]:
    nodes = model.nodes(*(f"{DOMAIN}::{op}" for op in _FUNCTIONS))
    found: dict[str, list[gs.Node]] = {op: [] for op in _FUNCTIONS}
    for node in nodes:
        found[node.op].append(node)
    return {op: nodes for op, nodes in found.items() if nodes}


def _is_one_of(candidate: FunctionProto, ops: Container[str]) -> bool:
    return candidate.domain == DOMAIN and candidate.name in ops


HOOKS.after_reading, HOOKS.before_writing = take_functions, with_functions
