"""Remove nodes that pass their input on unchanged: Identity, and Dropout outside training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of, producer, replace
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class DropIdentity(Pass):
    """Remove Identity nodes, and Dropout nodes in their inference form.

    Graph outputs keep their names: the node before it produces the output instead. That is not
    possible if the value is a graph input, an initializer, another output or a tensor of an
    enclosing graph; then the Identity stays.
    """

    name: ClassVar[str] = "drop-identity"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes("Identity", "Dropout"):
            reason = _why_it_stays(node, model)
            if reason:
                trace.skip(node, reason)
                continue
            trace.rewrote(node)
            replace(node, by=node.inputs[0], model=model)


def _why_it_stays(node: gs.Node, model: Model) -> str:
    source, result = node.inputs[0], node.outputs[0]
    reason = _why_it_drops(node, model) if node.op == "Dropout" else ""
    if reason:
        return reason
    if not model.is_output(result):
        return "" if result.outputs else "its result is unused, as in the source file"
    origin = producer(source)
    if origin is None:
        kind = "initializer" if isinstance(source, gs.Constant) else "input"
        return f"it connects the graph {kind} '{source.name}' to an output"
    if model.is_output(source):
        return f"'{source.name}' and '{result.name}' are both outputs"
    if origin.owner is not node.owner:
        return f"'{source.name}' comes from an enclosing graph and is an output of this one"
    return ""


def _why_it_drops(node: gs.Node, model: Model) -> str:
    """Why a Dropout may change its input; '' for one that never does."""
    for mask in node.outputs[1:]:
        if mask.outputs or model.is_output(mask):
            return f"its mask '{mask.name}' is used"
    if model.opset < 7:  # training is the default
        return "" if node.attrs.get("is_test", 0) else "it is in training mode (is_test is 0)"
    training = inputs_of(node, 3)[2]
    if training is None:
        return ""
    value = array(training)
    if value is None:
        return f"whether it trains is known only at run time ('{training.name}')"
    return "it is in training mode" if value.any() else ""
