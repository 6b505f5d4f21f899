"""Writes functions that hide products in a form that has places for quantizers.

F.scaled_dot_product_attention    a = softmax(q kT / sqrt(d) + mask),  y = a v
torch.addmm, torch.baddbmm        y = a b + c,  or a Linear if b and c are parameters
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from torch_bridge.capture.mode_differences import OWNER
from torch_bridge.capture.value_types import FLOAT, SHAPE

WRITTEN_FOR = "onnxq_written_for"
"""Key in a node's meta: the function that it is a part of."""


def expand_products(graph_module: fx.GraphModule, *, of_activations: bool) -> None:
    """Replace every such call in the graph, in place; its nodes must be marked.

    Args:
        graph_module: the graph.
        of_activations: whether products of two activations are quantized; if not, attention stays
            one function.
    """
    graph = graph_module.graph
    known = dict(_EXPANSIONS)
    if not of_activations:
        del known[F.scaled_dot_product_attention]
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in known:
            continue
        expand, names = known[node.target]
        named = {_OTHER_NAMES.get(name, name): value for name, value in node.kwargs.items()}
        given = dict(zip(names, node.args, strict=False)) | named
        with graph.inserting_before(node):
            result = expand(_Writer(graph, node.meta.get(OWNER, ""), node.target), **given)
        node.replace_all_uses_with(result)
        graph.erase_node(node)
    graph_module.recompile()


class _Writer(NamedTuple):
    """Adds calls of functions that return float tensors."""

    graph: fx.Graph
    owner: str
    written_for: Any

    def __call__(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        node = self.graph.call_function(function, args)
        node.meta.update({OWNER: self.owner, FLOAT: True, WRITTEN_FOR: self.written_for})
        return node


def _attention(
    call: _Writer,
    query: fx.Node,
    key: fx.Node,
    value: fx.Node,
    attn_mask: fx.Node | None = None,
    dropout_p: fx.Node | float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> fx.Node:
    shape = query.meta[SHAPE]
    if enable_gqa:  # each head of keys and values serves several of queries
        times = shape[-3] // key.meta[SHAPE][-3]
        key, value = (call(torch.repeat_interleave, t, times, -3) for t in (key, value))
    factor = 1 / math.sqrt(shape[-1]) if scale is None else scale
    scores = call(torch.matmul, call(torch.mul, query, factor), call(torch.transpose, key, -2, -1))
    if is_causal:
        scores = call(causally_masked, scores)
    if attn_mask is not None:
        scores = call(masked, scores, attn_mask)
    weights = call(torch.softmax, scores, -1)
    if dropout_p:
        weights = call(dropped, weights, dropout_p)
    return call(torch.matmul, weights, value)


def _sum_and_product(
    call: _Writer,
    input: fx.Node,
    left: fx.Node,
    right: fx.Node,
    beta: float = 1,
    alpha: float = 1,
) -> fx.Node:
    if alpha == beta == 1 and all(_is_parameter(n, rank) for n, rank in ((input, 1), (right, 2))):
        return call(F.linear, left, call(torch.t, right), input)  # a bias, not a second operand
    product = call(torch.matmul, left, right)
    product = product if alpha == 1 else call(torch.mul, product, alpha)
    return call(torch.add, product, input if beta == 1 else call(torch.mul, input, beta))


def _is_parameter(node: fx.Node, rank: int) -> bool:
    return node.op == "get_attr" and len(node.meta.get(SHAPE, ())) == rank


_SUM = (_sum_and_product, ("input", "left", "right"))
_EXPANSIONS: dict[Any, tuple[Callable[..., fx.Node], tuple[str, ...]]] = {
    F.scaled_dot_product_attention: (
        _attention,
        ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
    ),
    torch.addmm: _SUM,
    torch.baddbmm: _SUM,
}
"""Functions, how they are written out, and the names of their positional arguments."""
_OTHER_NAMES = {"mat1": "left", "mat2": "right", "batch1": "left", "batch2": "right"}


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    """The scores with a mask: numbers to add, or False where a position is excluded.

    One function: the mask itself is not rounded, whose lowest numbers would take all codes.
    """
    if mask.dtype is torch.bool:
        return scores.masked_fill(mask.logical_not(), -math.inf)
    return scores + mask


def causally_masked(scores: Tensor) -> Tensor:
    """The scores of each position with those before it and itself."""
    rows, columns = scores.size(-2), scores.size(-1)
    ahead = torch.ones(rows, columns, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(ahead, -math.inf)


def dropped(weights: Tensor, p: float) -> Tensor:
    """The weights with dropout; p is 0 in evaluation."""
    return F.dropout(weights, p) if p else weights


MASKS = frozenset({masked, causally_masked})
"""Functions whose results are not rounded."""
