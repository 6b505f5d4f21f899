"""Channels last at the borders, and no Transpose in between that another one undoes.

ONNX's convolutions and pools take channels first, and so do their weights. A graph for a target
that feeds and reads images with channels last therefore holds a Transpose behind each such input
and in front of each such output, and as few as possible elsewhere. Models that come from
frameworks with channels last hold a pair around every convolution: each Transpose is pushed
towards the outputs, through all operators that do not care about the layout, until it meets the
one that undoes it, and both go. (`onnxq.analysis.channels_last` says which operators, and how.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import onnx_graphsurgeon as gs

from onnxq.analysis.channels_last import Moved, ignores_layout, moved
from onnxq.edit import (
    constant,
    new_node,
    producer,
    replace,
    set_input,
    set_inputs,
    set_output,
    users,
    variable,
)
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace
from onnxq.storage.exporter import sorted_nodes

_SPATIAL = frozenset(
    {
        *(
            "Conv",
            "ConvTranspose",
            "ConvInteger",
            "QLinearConv",
            "MaxPool",
            "AveragePool",
            "LpPool",
        ),
        *("GlobalAveragePool", "GlobalMaxPool", "BatchNormalization", "InstanceNormalization"),
        *("LRN", "DepthToSpace", "SpaceToDepth"),
    }
)
"""Operators whose first input and output have channels first."""

_Perm = tuple[int, ...]


@dataclass(frozen=True)
class ToNhwc(Pass):
    """Cancel the Transposes of channels-last models; with signature=nhwc make images so outside.

    With signature=keep inputs and outputs stay what they are. With signature=nhwc those that hold
    channels first, since a convolution or pool reads or makes them, get channels last.
    """

    name: ClassVar[str] = "to-nhwc"
    exact: ClassVar[bool] = True

    signature: Literal["keep", "nhwc"] = "keep"

    def run(self, model: Model, trace: Trace) -> None:
        if self.signature == "nhwc":
            _channels_last_outside(model, trace)
        for graph in list(model.graphs()):
            for node in sorted_nodes(graph):
                if node.op == "Transpose" and not domain_of(node):
                    _cancel(model, node, trace)
                elif ignores_layout(node):
                    _push(model, node, trace)


# -- inside -----------------------------------------------------------------------------------


def first_to_last(rank: int) -> _Perm:
    """The permutation that makes channels-last of channels-first."""
    return (0, *range(2, rank), 1)


def last_to_first(rank: int) -> _Perm:
    """The permutation that makes channels-first of channels-last."""
    return (0, rank - 1, *range(1, rank - 1))


def _perm(node: gs.Node | None, owner: gs.Graph) -> _Perm | None:
    """The permutation of a Transpose between the two layouts, in the same graph."""
    if node is None or node.op != "Transpose" or domain_of(node) or node.owner is not owner:
        return None
    given = node.attrs.get("perm")
    if given is None or not 3 <= len(given) <= 5:
        return None
    perm = tuple(int(p) for p in given)
    return perm if perm in (first_to_last(len(perm)), last_to_first(len(perm))) else None


def _cancel(model: Model, node: gs.Node, trace: Trace) -> None:
    """Take a Transpose out together with the one in front, where they undo each other."""
    first = producer(node.inputs[0])
    second, before = _perm(node, node.owner), _perm(first, node.owner)
    if first is None or second is None or before is None or len(second) != len(before):
        return
    if tuple(before[i] for i in second) != tuple(range(len(second))):
        return
    trace.rewrote(node, "undoes the Transpose before it")
    replace(node, by=first.inputs[0], model=model)


def _push(model: Model, node: gs.Node, trace: Trace) -> None:
    """Let `node` work in front of the Transposes that it reads, and put one behind it."""
    makers = [producer(t) for t in node.inputs if t.name]
    perm = next((p for m in makers if (p := _perm(m, node.owner)) is not None), None)
    if perm is None:
        return
    change = moved(node, perm, model.opset)
    if change is None:
        return
    sources = _sources(node, change, perm)
    if sources is None:
        return
    for index, source in sources.items():
        set_input(node, index, source)
    for index, value in change.constants.items():
        made = constant(model, node.inputs[index].name, value)
        set_input(node, index, made)
    node.attrs.update(change.attrs)
    for slot, result in enumerate(list(node.outputs)):
        if not result.name:
            continue
        inner = variable(model, f"{result.name}.{_layout(perm, of_input=True)}", like=result)
        if inner.shape is not None and len(inner.shape) == len(perm):
            inner.shape = [inner.shape[perm.index(i)] for i in range(len(perm))]
        set_output(node, slot, inner)
        _transpose(model, inner, result, perm, node.owner)
    trace.rewrote(node, "moved before the Transpose")


def _sources(node: gs.Node, change: Moved, perm: _Perm) -> dict[int, gs.Tensor] | None:
    """What the data inputs are in front of their Transposes; None where one has no such."""
    found = {}
    for index in change.data:
        maker = producer(node.inputs[index])
        if maker is None or _perm(maker, node.owner) != perm:
            return None
        found[index] = maker.inputs[0]
    return found


def _transpose(model: Model, x: gs.Tensor, y: gs.Tensor, perm: _Perm, graph: gs.Graph) -> None:
    name = f"{y.name}.to_{_layout(perm, of_input=False)}"
    new_node(model, "Transpose", [x], [y], name=name, attrs={"perm": list(perm)}, graph=graph)


def _layout(perm: _Perm, of_input: bool) -> str:
    """How what a Transpose reads or makes is laid out."""
    return "nchw" if (perm == first_to_last(len(perm))) == of_input else "nhwc"


# -- the borders ------------------------------------------------------------------------------


def _channels_last_outside(model: Model, trace: Trace) -> None:
    graph = model.graph
    order = sorted_nodes(graph)
    read, made = _images_read(order), _images_made(order)
    for x in list(graph.inputs):
        rank = 0 if x.shape is None else len(x.shape)
        if id(x) not in read or not 3 <= rank <= 5 or model.is_output(x) or is_constant(x):
            continue
        inner = variable(model, f"{x.name}.nchw", like=x)
        set_inputs([(node, index, inner) for node, index in users(x)])
        assert x.shape is not None
        x.shape = [x.shape[i] for i in first_to_last(rank)]
        _transpose(model, x, inner, last_to_first(rank), graph)
        trace.rewrote(f"input '{x.name}'", "channels last")
    for y in list(graph.outputs):
        rank = 0 if y.shape is None else len(y.shape)
        maker = producer(y)
        if id(y) not in made or not 3 <= rank <= 5 or maker is None or maker.owner is not graph:
            continue
        inner = variable(model, f"{y.name}.nchw", like=y)
        set_inputs([(node, index, inner) for node, index in users(y)])
        set_output(maker, next(i for i, t in enumerate(maker.outputs) if t is y), inner)
        assert y.shape is not None
        y.shape = [y.shape[i] for i in first_to_last(rank)]
        _transpose(model, inner, y, first_to_last(rank), graph)
        trace.rewrote(f"output '{y.name}'", "channels last")


def _images_read(order: list[gs.Node]) -> set[int]:
    """Tensors that a spatial operator reads, perhaps behind others that ignore the layout."""
    found: set[int] = set()
    for node in reversed(order):
        if _is_spatial(node):
            found.add(id(node.inputs[0]))
        elif ignores_layout(node) and any(id(t) in found for t in node.outputs):
            found |= {id(t) for t in node.inputs if _ranks_agree(t, node.outputs[0])}
    return found


def _images_made(order: list[gs.Node]) -> set[int]:
    """Tensors that a spatial operator makes, perhaps in front of others that ignore the layout."""
    found: set[int] = set()
    for node in order:
        if _is_spatial(node):
            found.add(id(node.outputs[0]))
        elif ignores_layout(node) and any(
            id(t) in found and _ranks_agree(t, node.outputs[0]) for t in node.inputs
        ):
            found |= {id(t) for t in node.outputs}
    return found


def _is_spatial(node: gs.Node) -> bool:
    return not domain_of(node) and node.op in _SPATIAL


def _ranks_agree(x: gs.Tensor, y: gs.Tensor) -> bool:
    return x.shape is None or y.shape is None or len(x.shape) == len(y.shape)
