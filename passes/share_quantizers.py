"""Let all consumers of a tensor read it quantized, if some of them do.

    Add(FakeQuantize(x), ...), LayerNormalization(x)
        ->  Add(q, ...), LayerNormalization(q)     q = FakeQuantize(x)

A target with one range per tensor rounds a tensor where it is made, so every consumer sees the
rounded values. Tools that quantize operator by operator (PPQ) leave the inputs of float operators
as they are. The file then matches what the target computes, and the cost is measured. A tensor
with several grids, or a quantizer in another body than the tensor, is left alone: which of them the
target would take is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, is_fake_quantize
from onnxq.canonical.quantizers import make, row_of
from onnxq.edit import describe, insert, producer, replace, set_inputs, users
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class ShareQuantizers(Pass):
    """Quantize a tensor for all of its consumers if it is quantized for some of them."""

    name: ClassVar[str] = "share-quantizers"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("unify-scales",)

    def run(self, model: Model, trace: Trace) -> None:
        sources = {id(n.inputs[0]): n.inputs[0] for n in model.nodes(FAKE_QUANTIZE)}
        for tensor in sources.values():
            if is_constant(tensor):
                continue
            found: list[gs.Node] = []
            bare: list[tuple[gs.Node, int]] = []
            for node, index in users(tensor):
                if index == 0 and is_fake_quantize(node):
                    found.append(node)
                else:
                    bare.append((node, index))
            if not bare and not model.is_output(tensor):
                continue
            why = _obstacle(tensor, found, model)
            if why:
                trace.skip(f"'{tensor.name}'", why)
                continue
            names = [describe(node) for node, _ in bare] or ["the network output"]
            _share(model, tensor, found[0], bare)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            trace.rewrote(f"'{tensor.name}'", f"rounded for {', '.join(names[:3])}{more} as well")


def _obstacle(tensor: gs.Tensor, quantizers: list[gs.Node], model: Model) -> str:
    """Why one quantizer cannot serve all consumers, or nothing."""
    if len(quantizers) > 1:
        return f"it has {len(quantizers)} quantizers with different grids"
    (quantizer,) = quantizers
    maker = producer(tensor)
    home = maker.owner if maker is not None else getattr(tensor, "owner", model.graph)
    if quantizer.owner is not home:
        return "its quantizer is in the body of another node"
    if model.is_output(tensor) and (maker is None or model.is_output(quantizer.outputs[0])):
        return "it leaves the network both rounded and as it is"
    return ""


def _share(
    model: Model, tensor: gs.Tensor, quantizer: gs.Node, bare: list[tuple[gs.Node, int]]
) -> None:
    if not model.is_output(tensor):
        set_inputs((node, index, quantizer.outputs[0]) for node, index in bare)
        return
    row, dtype = row_of(quantizer), quantizer.inputs[1].dtype
    replace(quantizer, by=tensor, model=model)
    insert(model, tensor, lambda x, y, graph: make(model, x, y, row, graph, dtype=dtype))
