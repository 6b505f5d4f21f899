"""The functions of the domain `onnxq` travel with the models that call them.

A model in memory contains the calls only. Writing adds the function each call needs, made for the
opset of the model; reading takes them out again, so that passes may raise the opset in between.

A file may contain its own body under one of these names, and then its calls compute that body. So
only bodies that onnxq wrote are taken out. Others move to a separate domain (`FOREIGN`) together
with their calls: they are user functions like any other.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

import onnx_graphsurgeon as gs
from onnx import FunctionProto, TensorProto, helper

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
"""The version of the domain that files import."""

_MIN_IR = 8  # model-local functions


class _Local(NamedTuple):
    """One function: its body for an opset, and the opset that some calls need."""

    body: Callable[[int], FunctionProto]
    needed_opset: Callable[[list[gs.Node]], int]


_FUNCTIONS = {
    fake_quantize.OP: _Local(fake_quantize.function, fake_quantize.needed_opset),
    fake_quantize_log.OP: _Local(
        fake_quantize_log.function, lambda calls: fake_quantize_log.MIN_OPSET
    ),
    upsample.OP: _Local(upsample.function, lambda calls: upsample.MIN_OPSET),
}


def with_functions(model: Model) -> Model:
    """`model` itself, or one that contains the functions, its opset raised as far as needed.

    It is only for writing: it shares the graph of `model` unless raising the opset changes that.
    """
    called = _called(model)
    if not called:
        return model
    need = max(_FUNCTIONS[op].needed_opset(nodes) for op, nodes in called.items())
    high_enough = model.opset >= need and model.ir_version >= _MIN_IR
    twin = model.alias() if high_enough else model.clone()
    twin.require_opset(need, "a model-local function needs it")
    twin.require_ir(_MIN_IR, "the canonical form is a model-local function")
    twin.functions = [f for f in twin.functions if not _is_one_of(f, called)]
    twin.functions += [_FUNCTIONS[op].body(twin.opset) for op in called]
    twin.opsets[DOMAIN] = VERSION
    return twin


def take_functions(model: Model) -> None:
    """Forget the functions of a model just read: `with_functions` adds fresh ones.

    A function stays if nothing would add it again: if no node calls it, or other functions do.
    Bodies that onnxq did not write stay, as user functions.
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
    """The form that calls of each function must have."""
    return {op: call_form(local.body(MAX_OPSET)) for op, local in _FUNCTIONS.items()}


def fresh(function: FunctionProto, opset: int) -> FunctionProto | None:
    """The body for `opset` of one of onnxq's functions; None for other functions."""
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
    opset = 21 if blocks else 20
    bodies = [_FUNCTIONS[name].body(opset)]
    if name == fake_quantize.OP:  # the first bodies that onnxq wrote
        bodies.append(fake_quantize.function(opset, TensorProto.INT32))
    return frozenset(map(form_of, bodies))


# -- what files may contain ---------------------------------------------------------------------


def _set_foreign_apart(model: Model) -> None:
    """Move functions of the domain that onnxq did not write, and their calls, to another domain."""
    foreign = [f for f in model.functions if f.domain == DOMAIN and not is_ours(f)]
    if not foreign:
        return
    taken = {f.domain for f in model.functions}
    numbered = (f"{FOREIGN}{number}" for number in itertools.count(2))
    domain = next(d for d in itertools.chain([FOREIGN], numbered) if d not in taken)
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


def _apart(
    function: FunctionProto, moves: bool, keys: Container[tuple[str, str]], domain: str
) -> FunctionProto:
    """`function`, or a copy that lies in the other domain, or calls functions there."""
    twin = FunctionProto()
    twin.CopyFrom(function)
    calls = [
        n for n in all_nodes(twin.node) if n.domain == DOMAIN and (n.op_type, n.overload) in keys
    ]
    if not moves and not calls:
        return function
    if moves:
        twin.domain = domain
    for node in calls:
        node.domain = domain
    if calls and not any(e.domain == domain for e in twin.opset_import):
        twin.opset_import.append(helper.make_opsetid(domain, VERSION))
    return twin


def _check_calls(model: Model) -> None:
    """Refuse calls that onnxq does not know: of an unknown version, overload or name."""
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
    called = {op: model.nodes(f"{DOMAIN}::{op}") for op in _FUNCTIONS}
    return {op: nodes for op, nodes in called.items() if nodes}


def _is_one_of(candidate: FunctionProto, ops: Container[str]) -> bool:
    return candidate.domain == DOMAIN and candidate.name in ops


HOOKS.after_reading, HOOKS.before_writing = take_functions, with_functions
