"""Remove Pad nodes that add nothing, as exporters leave them before convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of, replace
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array


@dataclass(frozen=True)
class DropZeroPad(Pass):
    """Remove Pad nodes whose pads are all zero.

    If such a node connects an input or another output to an output, it becomes an Identity.
    """

    name: ClassVar[str] = "drop-zero-pad"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes("Pad"):
            pads = _pads(node)
            if pads is None:
                trace.skip(node, f"its pads '{node.inputs[1].name}' are known only at run time")
            elif not pads.any():
                if not node.outputs[0].outputs and not model.is_output(node.outputs[0]):
                    trace.skip(node, "its result is unused, as in the source file")
                    continue
                trace.rewrote(node)
                replace(node, by=node.inputs[0], model=model)


def _pads(node: gs.Node) -> Array | None:
    """The pads: an input since opset 11, before that an attribute (opset 1: 'paddings')."""
    given = node.attrs.get("pads", node.attrs.get("paddings"))
    return array(inputs_of(node, 2)[1]) if given is None else np.asarray(given, np.int64)
