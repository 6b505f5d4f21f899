"""Which operators compute on codes and which in float, each with the reason.

For onnxruntime the answer is its own (`onnxq.ort_fusion.prediction`). For other targets it follows
from the quantizers and the placement of the backend: an operator counts as integer if all it reads
is quantized where the target wants codes. What a vendor's compiler fuses beyond that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.backend import Backend
from onnxq.canonical.quantizers import is_quantizer, quantizer_behind
from onnxq.edit import describe, producer
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.lint.rule import Subject
from onnxq.operators.float_guard import is_float_guard
from onnxq.operators.op_kind import kind_of, weight_of
from onnxq.ort_fusion.prediction import Prediction
from onnxq.reporting.sequence import in_sequence
from onnxq.running.samples import is_float

_FUSED = ("Relu", "Clip")
"""Activation functions that every target runs inside the layer before them, or on codes."""

_GUARD = "it changes nothing, but keeps onnxruntime from quantizing a layer by itself"
_REMOVED = (*_FUSED, "Identity", "Dropout")
"""What onnxruntime removes where nothing is left for it to do."""

Precision = Literal["integer", "float", "constant", "index"]


@dataclass(frozen=True)
class Fate:
    """How a target runs one operator."""

    precision: Precision
    """integer: on codes. float: on real numbers. constant: computed when the model is loaded.
    index: on shapes, indices or labels, which are neither codes nor real numbers."""
    kernel: str = ""
    """The integer kernel, or the operator that it runs inside."""
    rule: str = ""
    """Short name of the reason for float."""
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return vars(self)


def first_output(node: gs.Node) -> str:
    """The name that tells a node from others: that of its first output."""
    return next((str(t.name) for t in node.outputs if t.name), "")


def fates(subject: Subject, plain: Model) -> dict[str, Fate]:
    """How the target runs the operators of `plain`, the network beneath the quantizers."""
    if "deployed" in subject.backend.sessions:
        found = _by_onnxruntime(subject, plain)
    else:
        found = _by_quantizers(subject.canonical, plain, subject.backend)
    others = (first_output(node) for node in plain.nodes() if _has_no_floats(node))
    return found | {key: Fate("index") for key in others if found[key].precision == "float"}


# -- onnxruntime --------------------------------------------------------------------------------


def _by_onnxruntime(subject: Subject, plain: Model) -> dict[str, Fate]:
    predicted = subject.outlook.nodes
    by_name = {
        str(node.name): predicted[first_output(node)]
        for node in subject.model.nodes()
        if node.name and first_output(node) in predicted
    }
    refused = "; ".join(refusal.reason for refusal in subject.outlook.refusals[:1])
    found: dict[str, Fate] = {}
    for node in in_sequence(plain):
        key = first_output(node)
        # Results that leave the network get another name with their quantizer; nodes do not.
        prediction = by_name.get(str(node.name)) or predicted.get(key)
        if is_float_guard(node):
            found[key] = Fate("float", rule="guard", reason=_GUARD)
        elif prediction is not None:
            found[key] = _of(prediction)
        elif _has_constants_only(node):
            found[key] = Fate("constant")
        else:
            found[key] = _of_missing(node, found, refused)
    return found


def _of(found: Prediction) -> Fate:
    if found.integer:
        return Fate("integer", found.kernel)
    return Fate("float", rule=found.rule, reason=found.reason)


def _of_missing(node: gs.Node, found: Mapping[str, Fate], refused: str) -> Fate:
    """The fate of a node that onnxruntime removed or took apart."""
    if refused:
        return Fate("float", rule="refused", reason=f"onnxruntime refuses the model: {refused}")
    maker = producer(node.inputs[0]) if node.inputs else None
    before = None if maker is None else found.get(first_output(maker))
    if node.op in _REMOVED and maker is not None and before is not None:
        if before.precision == "integer":  # the quantizer after it does its work
            return Fate("integer", f"in {describe(maker)}")
        return Fate("float", rule="before", reason=f"{describe(maker)} before it is float")
    return Fate("float", rule="taken-apart", reason=f"onnxruntime takes {node.op} apart")


# -- other targets --------------------------------------------------------------------------------


def _by_quantizers(canonical: Model, plain: Model, backend: Backend) -> dict[str, Fate]:
    """By the quantizers of the canonical form, whose nodes have the names of `plain`."""
    known: dict[int, gs.Node | None] = {}
    placed = {first_output(n): n for n in canonical.nodes() if not is_quantizer(n)}
    named = {str(n.name): n for n in placed.values() if n.name}
    found: dict[str, Fate] = {}
    for node in in_sequence(plain):
        key = first_output(node)
        twin = named.get(str(node.name)) or placed.get(key)
        if _has_constants_only(node):
            found[key] = Fate("constant")
        elif twin is None:
            found[key] = Fate("float", rule="unknown", reason="it has no twin with quantizers")
        else:
            found[key] = _judged(node, twin, found, backend, known)
    return found


def _judged(
    node: gs.Node,
    twin: gs.Node,
    found: Mapping[str, Fate],
    backend: Backend,
    known: dict[int, gs.Node | None],
) -> Fate:
    placement, kind = backend.placement, kind_of(node)
    bare = [t for t in _operands(node, twin) if quantizer_behind(t, known) is None]
    if kind in placement.moves or kind in placement.absorbed or kind in _FUSED:
        if not bare:
            return Fate("integer", "on codes")
        maker = producer(node.inputs[0])
        before = None if maker is None else found.get(first_output(maker))
        if maker is not None and before is not None and before.precision == "integer":
            return Fate("integer", f"in {describe(maker)}")
    elif kind not in placement.inputs and not (
        kind in placement.weights and weight_of(node) is not None
    ):
        reason = f"{backend.name} has no quantizers for {node.op}"
        return Fate("float", rule="no-integer-kernel", reason=reason)
    elif not bare:
        return Fate("integer", node.op)
    return Fate("float", rule="float-input", reason=f"its input '{bare[0].name}' is not quantized")


def _operands(node: gs.Node, twin: gs.Node) -> Iterable[gs.Tensor]:
    """What a node computes with, as quantizers leave it: activations, and the weight of a layer."""
    weight = weight_of(node)
    for at, (plain, tensor) in enumerate(zip(node.inputs, twin.inputs, strict=False)):
        if at == 0 or plain is weight or not is_constant(plain):
            yield tensor


def _has_no_floats(node: gs.Node) -> bool:
    """Whether no result is a real number, as far as types are known."""
    kinds = [t.dtype for t in node.outputs if t.name]
    return bool(kinds) and all(kind is not None and not is_float(np.dtype(kind)) for kind in kinds)


def _has_constants_only(node: gs.Node) -> bool:
    given = [t for t in node.inputs if t.name]
    return bool(given) and all(map(is_constant, given))


__all__ = ["Fate", "Precision", "fates", "first_output"]
