"""PPQ's private operators to those of ONNX.

PPQ (and its fork for ESP-DL) takes a ConvTranspose of stride s apart:

    InsertZeros(x)   s - 1 zeros between neighbours along each spatial axis, `output_padding`
                     zeros behind the last one; a plain Conv follows

and writes the operator into ONNX's own domain, where no runtime knows it. Spreading values apart
is what ConvTranspose does with a kernel of one weight, 1, for each channel; each result is one
product with 1, so the numbers stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.constants import array
from onnxq.edit import constant, describe, remove
from onnxq.edit import new_node as make_node
from onnxq.graph import Model, domain_of
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class ReadPpq(Pass):
    """Read PPQ's private InsertZeros as ConvTranspose with a kernel of ones."""

    name: ClassVar[str] = "read-ppq"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes("InsertZeros"):
            if domain_of(node) or len(node.inputs) != 1 or "stride" not in node.attrs:
                continue
            strides = [int(s) for s in node.attrs["stride"]]
            channels = _channels(node)
            if channels is None:
                trace.skip(node, f"the number of channels of '{node.inputs[0].name}' is not known")
                continue
            label = describe(node)
            x, out, owner = node.inputs[0], node.outputs[0], node.owner
            name = node.name or out.name
            extra = [int(p) for p in node.attrs.get("output_padding", [0] * len(strides))]
            remove(node, model)
            ones = np.ones((channels, 1, *[1] * len(strides)), x.dtype or np.float32)
            make_node(
                model,
                "ConvTranspose",
                [x, constant(model, f"{name}.ones", ones)],
                [out],
                name=name,
                attrs={"group": channels, "strides": strides, "output_padding": extra},
                graph=owner,
            )
            trace.rewrote(label, f"ConvTranspose of ones, stride {strides}")


def _channels(node: gs.Node) -> int | None:
    """Channels of what is spread apart: from its shape, or from the weight of the Conv behind."""
    for tensor in (node.inputs[0], node.outputs[0]):
        if tensor.shape is not None and len(tensor.shape) > 1 and isinstance(tensor.shape[1], int):
            return int(tensor.shape[1])
    behind, reader = node.outputs[0], None
    for _ in range(3):  # perhaps a quantizer's two nodes in between
        reader = behind.outputs[0] if behind.outputs else None
        if reader is None or reader.op == "Conv":
            break
        behind = reader.outputs[0]
    if reader is None or reader.op != "Conv":
        return None
    weight = reader.inputs[1]
    stored = weight if array(weight) is not None else weight.inputs[0].inputs[0]
    values = array(stored)
    return None if values is None else int(values.shape[1]) * int(reader.attrs.get("group", 1))
