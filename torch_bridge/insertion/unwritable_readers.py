"""Quantizers that are trained although a target's files cannot contain them.

Some files cannot contain the range of the inputs of certain ops (`Placement.unwritable`). A chip
still computes these ops on codes, with its own ranges, so the rounding is trained. It is left out
when the model is deployed, and the change is measured. Users should know this before training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import fx, nn

from torch_bridge.insertion.rules import Rules, Spot


def unwritable_readers(rules: Rules, spots: Iterable[Spot], backend: str) -> Iterator[str]:
    """A note on every op that reads a quantized tensor whose range the files cannot contain."""
    placement = rules.placement
    if not placement.unwritable and not placement.unwritable_groups:
        return
    quantized = {producer for spot in spots for producer in spot.producers}
    for node in rules.graph.nodes:
        kind = rules.kind(node) or ""
        grouped = (
            placement.unwritable_groups and kind == "Conv" and _groups(node, rules.modules) != 1
        )
        if not grouped and kind not in placement.unwritable - placement.moves:
            continue
        read = [s for operand in rules.operands(node) for s in rules.sources(operand)]
        if not quantized.isdisjoint(read):
            what = "a convolution in groups" if grouped else kind
            yield (
                f"{node.target if node.op == 'call_module' else node.name} ({what}): files for "
                f"{backend} cannot contain the range of its input, so the quantizer is trained "
                "here and left out when the model is deployed; the cost is measured"
            )


def _groups(node: fx.Node, modules: dict[str, nn.Module]) -> object:
    if node.op == "call_module":
        return getattr(modules[str(node.target)], "groups", 1)
    position = 6  # of conv1d, conv2d and conv3d alike
    return node.args[position] if len(node.args) > position else node.kwargs.get("groups", 1)
