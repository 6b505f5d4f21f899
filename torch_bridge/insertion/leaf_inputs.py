"""One quantizer for a tensor that several layers inside of leaf modules read.

A leaf module (attention, a recurrent layer) has no graph, so each of its layers quantizes what it
reads. Its arguments are nodes of the graph around it, though: an argument that is quantized there
already needs no second rounding, and one that is given twice has one range, as on a chip.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from torch import fx, nn

from torch_bridge.fake_quant import FakeQuantize
from torch_bridge.nn.attention import Attention
from torch_bridge.nn.qat import QatLayer
from torch_bridge.nn.recurrent import Recurrent


def join_leaf_inputs(graph_module: fx.GraphModule) -> None:
    """Drop and share quantizers of the arguments of leaf modules, in place."""
    modules = dict(graph_module.named_modules(remove_duplicate=False))
    calls: dict[Attention | Recurrent, list[fx.Node]] = defaultdict(list)
    for node in graph_module.graph.nodes:
        leaf = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(leaf, Attention | Recurrent):
            calls[leaf].append(node)
    for leaf, nodes in calls.items():
        first_of: dict[tuple[object, ...], QatLayer] = {}
        for argument in range(min(len(node.args) for node in nodes)):
            given = tuple(node.args[argument] for node in nodes)
            for layer in leaf.first_layers(argument):
                if not isinstance(layer, QatLayer) or layer.input_fake_quant is None:
                    continue
                if all(_rounds_as(layer.input_fake_quant, value, modules) for value in given):
                    layer.input_fake_quant = None
                else:
                    first = first_of.setdefault(given, layer)
                    if _spec(first.input_fake_quant) == _spec(layer.input_fake_quant):
                        layer.input_fake_quant = first.input_fake_quant


def _rounds_as(quantizer: nn.Module, value: object, modules: Mapping[str, nn.Module]) -> bool:
    """Whether `value` is rounded in the graph in the way that `quantizer` would round it."""
    if not isinstance(value, fx.Node) or value.op != "call_module":
        return False
    made_by = modules.get(str(value.target))
    return isinstance(made_by, FakeQuantize) and _spec(made_by) == _spec(quantizer)


def _spec(quantizer: nn.Module | None) -> object:
    return (type(quantizer), getattr(quantizer, "spec", None))
