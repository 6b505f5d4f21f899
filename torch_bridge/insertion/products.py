"""The products of a model, and which of them are computed on codes.

A product is a layer with a weight (Conv, ConvTranspose, Linear) or a matrix product of two
activations: nearly all the arithmetic of a network. It is quantized if its weight and all
activations that the placement asks for are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import torch
from torch import fx, nn
from torch.nn import functional as F

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
from torch_bridge.nn.recurrent import is_recurrent

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


def float_products(rules: Rules, backend: str) -> Iterator[str]:
    """Tell of products of two activations that the target does not have on codes, and why."""
    found = [
        node
        for node in rules.graph.nodes
        if (rules.kind(node) == "MatMul" and node not in rules.of_weights)
        or node.target is F.scaled_dot_product_attention
        if not rules.include.has_node(node)
    ]
    asked = rules.placement.inputs | rules.placement.outputs
    whole = sum(isinstance(m, ActivationProduct) for m in rules.modules.values())
    count = whole + sum(1 + (n.target is F.scaled_dot_product_attention) for n in found)
    if "MatMul" in asked or not count:
        return
    why = rules.placement.float_products
    products = "1 product" if count == 1 else f"{count} products"
    yield f"{products} of two activations stay float for {backend}{f': {why}' if why else ''}"


def products_of_modules(
    model: nn.Module,
    untraced: Collection[str],
    left_out: Selection,
    recurrent: Mapping[str, str] | None = None,
) -> Iterator[Product]:
    """The products of modules without a graph: those that are layers.

    `recurrent` says why recurrent layers are one function, by path.
    """
    for path, module in model.named_modules():
        known = isinstance(module, ActivationProduct) or module_kind(module) in WEIGHTED
        whole = is_recurrent(module)
        if (whole or (known and inside(path, untraced))) and left_out.has_module(path):
            yield Product(path, left_out.reason(path), asked=True)
        elif whole and path in (recurrent or {}):  # else the target has no Linear on codes
            yield Product(path, (recurrent or {})[path])
        elif not inside(path, untraced):
            continue
        elif isinstance(module, ActivationProduct):
            if module.left_fake_quant is not None:  # else the target has none on codes
                yield Product(path)
        elif module_kind(module) in WEIGHTED:
            missing = not isinstance(module, QatLayer)
            yield Product(path, f"{type(module).__name__} was left float" if missing else "")


def _name(node: fx.Node) -> str:
    if node.op == "call_module":
        return str(node.target)
    owner = node.meta.get(OWNER, "")
    return f"{node.name} in {owner}" if owner else node.name
