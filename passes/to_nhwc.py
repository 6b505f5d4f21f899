"""Channels last at the borders, and no Transpose in between that another one undoes.

ONNX's convolutions and pools take channels first, and so do their weights. A graph for a target
that feeds and reads images with channels last therefore contains a Transpose after each such input
and before each such output, and as few as possible elsewhere. Models that come from frameworks with
channels last contain a pair around every convolution. Each Transpose is pushed towards the outputs,
through all operators that do not depend on the layout, until it meets the one that undoes it. Both
are then removed. `onnxq.analysis.channels_last` lists the operators and how they change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import onnx_graphsurgeon as gs

from onnxq.analysis.channels_last import ignores_layout, moved
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
from onnxq.graph.links import slot_of
from onnxq.pass_ import Pass, Trace
from onnxq.storage.exporter import sorted_nodes

_SPATIAL = {
    *("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool"),
    *("GlobalAveragePool", "GlobalMaxPool", "BatchNormalization", "InstanceNormalization"),
    *("LRN", "DepthToSpace", "SpaceToDepth"),
}
"""Operators whose first input and output have channels first."""

_Perm = tuple[int, ...]


@dataclass(frozen=True)
class ToNhwc(Pass):
    """Cancel the Transposes of channels-last models; signature=nhwc makes images channels last.

    With signature=keep inputs and outputs stay as they are. With signature=nhwc those that have
    channels first, since a convolution or pool reads or produces them, get channels last.
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


def _first_to_last(rank: int) -> _Perm:
    """The permutation from channels first to channels last."""
    return (0, *range(2, rank), 1)


def _inverse(perm: _Perm) -> _Perm:
    return tuple(perm.index(i) for i in range(len(perm)))


def _perm(node: gs.Node | None, owner: gs.Graph) -> _Perm | None:
    """The permutation of a Transpose between the two layouts, in the same graph."""
    if node is None or node.op != "Transpose" or domain_of(node) or node.owner is not owner:
        return None
    given = node.attrs.get("perm")
    if given is None or not 3 <= len(given) <= 5:
        return None
    perm = tuple(int(p) for p in given)
    to_last = _first_to_last(len(perm))
    return perm if perm in (to_last, _inverse(to_last)) else None


def _cancel(model: Model, node: gs.Node, trace: Trace) -> None:
    """Remove a Transpose together with the one before it, if they undo each other."""
    first = producer(node.inputs[0])
    before = _perm(first, node.owner)
    if first is None or before is None or _perm(node, node.owner) != _inverse(before):
        return
    trace.rewrote(node, "undoes the Transpose before it")
    replace(node, by=first.inputs[0], model=model)


def _push(model: Model, node: gs.Node, trace: Trace) -> None:
    """Move `node` before the Transposes that it reads, and put one after it."""
    before = [producer(t) for t in node.inputs if t.name]
    perm = next((p for t in before if (p := _perm(t, node.owner)) is not None), None)
    change = None if perm is None else moved(node, perm, model.opset)
    if perm is None or change is None:
        return
    transposes = {index: producer(node.inputs[index]) for index in change.data}
    if any(_perm(transpose, node.owner) != perm for transpose in transposes.values()):
        return
    for index, transpose in transposes.items():
        assert transpose is not None
        set_input(node, index, transpose.inputs[0])
    for index, value in change.constants.items():
        set_input(node, index, constant(model, node.inputs[index].name, value))
    node.attrs.update(change.attrs)
    for slot, result in enumerate(list(node.outputs)):
        if not result.name:
            continue
        inner = variable(model, f"{result.name}.{_layout(perm, of_input=True)}", like=result)
        if inner.shape is not None and len(inner.shape) == len(perm):
            inner.shape = [inner.shape[i] for i in _inverse(perm)]
        set_output(node, slot, inner)
        _transpose(model, inner, result, perm, node.owner)
    trace.rewrote(node, "moved before the Transpose")


def _transpose(model: Model, x: gs.Tensor, y: gs.Tensor, perm: _Perm, graph: gs.Graph) -> None:
    name = f"{y.name}.to_{_layout(perm, of_input=False)}"
    new_node(model, "Transpose", [x], [y], name=name, attrs={"perm": list(perm)}, graph=graph)


def _layout(perm: _Perm, of_input: bool) -> str:
    """The layout of the input or output of a Transpose."""
    return "nchw" if (perm == _first_to_last(len(perm))) == of_input else "nhwc"


# -- the borders ------------------------------------------------------------------------------


def _channels_last_outside(model: Model, trace: Trace) -> None:
    graph = model.graph
    order = sorted_nodes(graph)
    read, produced = _images_read(order), _images_produced(order)
    for x in list(graph.inputs):
        if id(x) in read and _has_image_rank(x) and not (model.is_output(x) or is_constant(x)):
            inner, to_last = _inner(model, x)
            _transpose(model, x, inner, _inverse(to_last), graph)
            trace.rewrote(f"input '{x.name}'", "channels last")
    for y in list(graph.outputs):
        source = producer(y)
        if source is None or source.owner is not graph:
            continue
        if id(y) in produced and _has_image_rank(y):
            inner, to_last = _inner(model, y)
            set_output(source, slot_of(source.outputs, y), inner)
            _transpose(model, inner, y, to_last, graph)
            trace.rewrote(f"output '{y.name}'", "channels last")


def _inner(model: Model, outer: gs.Tensor) -> tuple[gs.Tensor, _Perm]:
    """A tensor with channels first for the consumers of `outer`, which gets channels last."""
    inner = variable(model, f"{outer.name}.nchw", like=outer)
    set_inputs([(node, index, inner) for node, index in users(outer)])
    to_last = _first_to_last(len(outer.shape))
    outer.shape = [outer.shape[i] for i in to_last]
    return inner, to_last


def _has_image_rank(tensor: gs.Tensor) -> bool:
    return tensor.shape is not None and 3 <= len(tensor.shape) <= 5


def _images_read(order: list[gs.Node]) -> set[int]:
    """Tensors that a spatial operator reads, perhaps after others that ignore the layout."""
    found: set[int] = set()
    for node in reversed(order):
        if _is_spatial(node):
            found.add(id(node.inputs[0]))
        elif ignores_layout(node) and any(id(t) in found for t in node.outputs):
            found |= {id(t) for t in node.inputs if _ranks_agree(t, node.outputs[0])}
    return found


def _images_produced(order: list[gs.Node]) -> set[int]:
    """Tensors that a spatial operator produces, perhaps before others that ignore the layout."""
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
