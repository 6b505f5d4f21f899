"""Raise a model's opset without changing its results or its metadata.

onnx's version converter rebuilds the model and loses metadata, functions and subgraph details,
so the rewriting is done here, node by node, driven by onnx's own operator schemas:

* an operator whose schema did not change between the two versions is left alone;
* an attribute that became an input is moved (`MOVED`);
* an operator whose meaning changed is rewritten by a rule (`RULES`);
* otherwise the node must be valid under the new schema unchanged; a default that changed is
  written out with its old value.

Anything else is refused by name: the opset is raised completely or not at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import onnx_graphsurgeon as gs
from onnx import AttributeProto, FunctionProto, defs, helper

from onnxq.canonical.local_functions import fresh
from onnxq.errors import UnsupportedModelError
from onnxq.graph import MAX_IR, MAX_OPSET, Model, domain_of
from onnxq.graph.hooks import HOOKS
from onnxq.opsets.upgrade_rules import MOVED, RULES, move_to_input, refusal
from onnxq.storage.function_form import all_nodes

__all__ = ["MOVED", "RULES", "carry", "raise_opset", "schema_of"]

_DEFAULT = ("", "ai.onnx")


def raise_opset(model: Model, version: int, why: str) -> None:
    """Raise the default domain of `model` to `version`."""
    old = model.opset
    if version <= old:
        return
    if version > MAX_OPSET:
        raise UnsupportedModelError(
            f"opset {version} is needed ({why}), but onnxruntime supports at most {MAX_OPSET}",
            fix=f"choose an opset up to {MAX_OPSET}, or a type that needs no newer one",
        )
    functions = [_restamped(function, version) for function in model.functions]
    _carry(model, lambda _: old, version)
    model.functions = functions
    for key in [key for key in _DEFAULT if key in model.opsets] or [""]:
        model.opsets[key] = version
    model.upgrades.append(f"opset {old} -> {version}: {why}")
    ir_version = min(helper.find_min_ir_version_for([helper.make_opsetid("", version)]), MAX_IR)
    model.require_ir(ir_version, f"opset {version}")


def carry(model: Model, written_for: Callable[[gs.Node], int]) -> None:
    """Carry nodes that were written for an older opset than the model's to that one.

    A refusal leaves the model as it is.
    """
    _carry(model, written_for, model.opset)


def _carry(model: Model, written_for: Callable[[gs.Node], int], version: int) -> None:
    for each in (model.clone(), model):  # a refusal must leave the model as it is
        for node in each.nodes():
            if domain_of(node):
                continue
            # A rule may change the operator (Upsample becomes Resize), so one version at a time.
            for step in range(written_for(node) + 1, version + 1):
                _upgrade(node, step, each)


@functools.cache
def schema_of(op: str, version: int) -> Any:
    """onnx's schema of an operator of the default domain in an opset, None if it has none."""
    try:
        return defs.get_schema(op, version, "")
    except defs.SchemaError:
        return None


def _upgrade(node: gs.Node, step: int, model: Model) -> None:
    """Carry one node from opset `step - 1` to `step`."""
    old, new = schema_of(node.op, step - 1), schema_of(node.op, step)
    if old is None or new is None or old.since_version == new.since_version:
        # Unknown operators (private ones in the default domain) have no versions.
        return
    key = (node.op, new.since_version)
    rule = RULES.get(key)
    if rule is not None:
        rule(node, model)
        return
    for name, index in MOVED.get(key, {}).items():
        # Absent optional attributes become absent inputs: the defaults are the same.
        if name in node.attrs:
            move_to_input(node, name, index, model)
    if new.deprecated:
        raise refusal(node, step, "the operator was removed from ONNX")
    for name in node.attrs:
        if name in old.attributes and name not in new.attributes:
            raise refusal(node, step, f"attribute '{name}' is gone")
    for name, attribute in old.attributes.items():
        if name in node.attrs or name not in new.attributes:
            continue
        before = attribute.default_value
        after = new.attributes[name].default_value
        if before.type != AttributeProto.UNDEFINED and before != after:
            node.attrs[name] = helper.get_attribute_value(before)
    if len(node.inputs) > new.max_input:
        raise refusal(node, step, f"it now takes at most {new.max_input} inputs")


# -- functions --------------------------------------------------------------------------------


def _restamped(function: FunctionProto, version: int) -> FunctionProto:
    """The function for `version`; refused if any operator in its body has changed."""
    ours = fresh(function, version)
    if ours is not None:
        return ours
    entry = next((e for e in function.opset_import if e.domain in _DEFAULT), None)
    if entry is None or entry.version >= version:
        return function
    for node in all_nodes(function.node):
        if node.domain in _DEFAULT:
            before, after = schema_of(node.op_type, entry.version), schema_of(node.op_type, version)
            if before is not None and before.since_version != after.since_version:
                raise UnsupportedModelError(
                    f"function '{function.domain}::{function.name}' uses {node.op_type}, which "
                    f"changed between opset {entry.version} and {version}",
                    fix="inline the model's functions (onnx.inliner), then convert",
                )
    twin = FunctionProto()
    twin.CopyFrom(function)
    for imported in twin.opset_import:
        if imported.domain in _DEFAULT:
            imported.version = version
    return twin


HOOKS.raise_opset = raise_opset
