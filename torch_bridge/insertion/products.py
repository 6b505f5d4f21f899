"""The products of a model, and which of them are computed on codes.

A product is a layer with a weight (Conv, ConvTranspose, Linear) or a matrix product of two
activations: nearly all the arithmetic of a network. It is quantized if its weight and all
activations that the placement asks for are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import torch
from torch import fx, nn

from onnxq.operators.traits import WEIGHTED
from torch_bridge.capture.mode_differences import OWNER
from torch_bridge.capture.report import Product
from torch_bridge.capture.tracing import inside
from torch_bridge.insertion.op_kinds import module_kind
from torch_bridge.insertion.rules import Rules, Spot
from torch_bridge.insertion.selectors import Selection
from torch_bridge.nn.attention import ActivationProduct
from torch_bridge.nn.layer_op import why_not_quantizable
from torch_bridge.nn.qat import QatLayer

_RECURRENT = {torch.lstm: "LSTM", torch.gru: "GRU", torch.rnn_tanh: "RNN", torch.rnn_relu: "RNN"}
_IN_ONE_FUNCTION = "computes all its products in one function"


def products_of_graph(rules: Rules, spots: Iterable[Spot]) -> Iterator[Product]:
    """The products that are nodes of a graph, before quantizers of activations are inserted."""
    quantized = {producer for spot in spots for producer in spot.producers}
    placement = rules.placement
    for node in rules.graph.nodes:
        if node.op == "call_function" and node.target in _RECURRENT:
            yield Product(_name(node), f"{_RECURRENT[node.target]} {_IN_ONE_FUNCTION}")
        kind = rules.kind(node)
        if kind not in WEIGHTED | {"MatMul"}:
            continue
        asks = kind in placement.inputs
        if node in rules.of_weights or not (asks or kind in placement.weights | placement.outputs):
            continue
        if rules.exclude.has_node(node):
            yield Product(_name(node), rules.exclude.reason(node), asked=True)
            continue
        yield Product(_name(node), _reason(rules, node, kind, quantized, asks))


def _reason(
    rules: Rules, node: fx.Node, kind: str, quantized: Collection[fx.Node], asks: bool
) -> str:
    if kind in rules.placement.weights and kind in WEIGHTED:
        if node.op == "call_module":
            module = rules.modules[str(node.target)]
            if not hasattr(module, "weight_fake_quant"):
                return why_not_quantizable(module) or f"{type(module).__name__} has no pattern"
        elif rules.weight_operand(node) is None and not asks:
            return "its weight is computed from the inputs"
    if not asks:
        return ""
    for operand in rules.operands(node):
        for source in rules.sources(operand):
            if source not in quantized:
                return f"'{source.name}' is not quantized"
    return ""


def products_of_modules(
    model: nn.Module, untraced: Collection[str], left_out: Selection
) -> Iterator[Product]:
    """The products of modules without a graph: those that are layers."""
    for path, module in model.named_modules():
        known = isinstance(module, ActivationProduct) or module_kind(module) in WEIGHTED
        if known and inside(path, untraced) and left_out.has_module(path):
            yield Product(path, left_out.reason(path), asked=True)
        elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
            yield Product(path, f"{type(module).__name__} {_IN_ONE_FUNCTION}")
        elif not inside(path, untraced):
            continue
        elif isinstance(module, ActivationProduct):
            missing = module.left_fake_quant is None
            yield Product(path, "the target multiplies activations in float" if missing else "")
        elif module_kind(module) in WEIGHTED:
            missing = not isinstance(module, QatLayer)
            yield Product(path, f"{type(module).__name__} was left float" if missing else "")


def _name(node: fx.Node) -> str:
    if node.op == "call_module":
        return str(node.target)
    owner = node.meta.get(OWNER, "")
    return f"{node.name} in {owner}" if owner else node.name
