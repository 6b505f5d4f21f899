"""An opset stamp older than the operators in the graph, raised to one that knows them all.

Some tools write HardSwish (opset 14) or LayerNormalization (17) into files that they stamp with
opset 13. No runtime loads those. The operators tell the truth: the stamp becomes the lowest opset
from the written one on whose schemas know every operator with the attributes it has. Operators
that the written opset does know are carried over without change of meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs
from onnx import defs

from onnxq.edit import describe
from onnxq.errors import UnsupportedModelError
from onnxq.graph import MAX_OPSET, Model, domain_of
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class CorrectOpset(Pass):
    """Raise an opset stamp that is older than the operators in the graph."""

    name: ClassVar[str] = "correct-opset"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        stamp, need, first = model.opset, model.opset, None
        for node in model.nodes():
            known = _first_opset(node, stamp)
            if known > need:
                need, first = known, node
        if first is None:
            return
        why = f"{describe(first)} ({first.op}) does not exist in opset {stamp}"
        try:
            model.require_opset(need, why)
        except UnsupportedModelError as error:
            trace.skip(first, f"the opset stamp {stamp} is too old for it, and {error.what}")
            return
        trace.rewrote(first, f"opset {stamp} is raised to {need}, the first that has {first.op}")


def _first_opset(node: gs.Node, stamp: int) -> int:
    """The first opset from `stamp` on that knows the operator as it is written.

    `stamp` itself for operators that no opset knows: they are private, and no stamp helps them.
    """
    if domain_of(node):
        return stamp
    for version in range(stamp, MAX_OPSET + 1):
        try:
            schema = defs.get_schema(node.op, version, "")
        except defs.SchemaError:
            continue
        if node.attrs.keys() <= schema.attributes.keys():
            return version
    return stamp
