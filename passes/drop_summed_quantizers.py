"""Remove the quantizer of a convolution whose result is added to something else.

    FakeQuantize(Conv(x)) + y   ->   Conv(x) + y

Runtimes that fuse Conv and Add sum y into the accumulator of the Conv, so its result is never
rounded to codes and the quantizer does not run. The file then matches what they compute. An Add has
one accumulator: of two convolutions the first one goes there, as in OpenVINO, and the other keeps
its quantizer. If one of them has no quantizer already, it is that one. A result with other
consumers is rounded, and keeps its quantizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.edit import describe, only_reader, producer, replace
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class DropSummedQuantizers(Pass):
    """Remove quantizers between a Conv and an Add that runs in its accumulator."""

    name: ClassVar[str] = "drop-summed-quantizers"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for add in model.nodes("Add"):
            if any(is_constant(t) for t in add.inputs):
                continue  # a bias
            found = [q for t in add.inputs if (q := _quantizer(t, add, model)) is not None]
            if not found:
                continue
            if any(_is_conv(t, add, model) for t in add.inputs):
                trace.skip(found[0], "the Add already runs in the accumulator of another Conv")
                continue
            tensor = found[0].inputs[0]
            trace.rewrote(f"'{tensor.name}'", f"goes to {describe(add)} unrounded")
            replace(found[0], by=tensor, model=model)


def _is_conv(tensor: gs.Tensor, reader: gs.Node, model: Model) -> bool:
    """Whether a Conv produces `tensor`, and only `reader` consumes it."""
    return producer(tensor, "Conv") is not None and only_reader(tensor, reader, model)


def _quantizer(tensor: gs.Tensor, add: gs.Node, model: Model) -> gs.Node | None:
    """The quantizer before `add` that rounds a Conv only for it."""
    node = producer(tensor, FAKE_QUANTIZE)
    if node is None or not only_reader(tensor, add, model):
        return None
    return node if _is_conv(node.inputs[0], node, model) else None
