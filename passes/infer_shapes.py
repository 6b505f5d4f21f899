"""Infer types and shapes of intermediate tensors, for passes, reports and targets that use them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs
from onnx import GraphProto, ValueInfoProto

from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.edit import identity
from onnxq.errors import UnsupportedModelError
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparam_table import QParamTable
from onnxq.running.shape_inference import infer, weightless, without_made_up_names
from onnxq.storage.exporter import live_nodes
from onnxq.storage.importer import decode_type, set_info


@dataclass(frozen=True)
class InferShapes(Pass):
    """Add types and shapes that the model does not declare, as far as onnx can infer them.

    A type or shape that is there already stays, right or wrong. If inference fails the model is
    left as it is, with a note: no pass depends on shapes.
    """

    name: ClassVar[str] = "infer-shapes"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        twin = model.clone()
        twin.qparams = QParamTable()  # it would be written as text
        for node in twin.nodes(*QUANTIZERS):  # the output has the type of the input
            identity(node, node.inputs[0])
        try:
            inferred = infer(twin.to_proto(weightless))
        except UnsupportedModelError as error:
            trace.note(error.what)
            return
        for graph, proto in _pairs(model.graph, inferred.graph):
            infos = {info.name: info for info in (*proto.value_info, *proto.output)}
            for node in live_nodes(graph):
                for tensor in node.outputs:
                    if not tensor.name or not _lacks_type(tensor):
                        continue
                    if _add(tensor, infos.get(tensor.name)):
                        trace.rewrote(f"'{tensor.name}'", _in_words(tensor))
                    elif tensor.dtype is None:
                        trace.skip(node, f"the type of '{tensor.name}' cannot be inferred")


def _pairs(graph: gs.Graph, proto: GraphProto) -> Iterator[tuple[gs.Graph, GraphProto]]:
    """Each graph with its protobuf; bodies are found by the outputs of their node."""
    stack = [(graph, proto)]
    while stack:
        graph, proto = stack.pop()
        yield graph, proto
        holders = {
            tuple(node.output): {a.name: a for a in node.attribute}
            for node in proto.node
            if any(a.HasField("g") or a.graphs for a in node.attribute)
        }
        for node in live_nodes(graph):
            attributes = holders.get(tuple(t.name for t in node.outputs), {})
            for name, value in node.attrs.items():
                if isinstance(value, gs.Graph):
                    stack.append((value, attributes[name].g))
                elif type(value) is list and value and isinstance(value[0], gs.Graph):
                    stack.extend(zip(value, attributes[name].graphs, strict=True))


def _lacks_type(tensor: gs.Tensor) -> bool:
    """Whether the whole type, or the shape of an inner tensor, can be added."""
    if tensor.dtype is None:
        info = getattr(tensor, "info", None)
        return info is None or info.type.WhichOneof("value") is None
    return tensor.shape is None and getattr(tensor, "output_info", None) is None


def _add(tensor: gs.Tensor, info: ValueInfoProto | None) -> bool:
    if info is None or info.type.WhichOneof("value") is None:
        return False
    dtype, shape = decode_type(info)
    if info.type.HasField("tensor_type") and dtype is None:
        return False
    if tensor.dtype is not None and (shape is None or dtype != tensor.dtype):
        return False
    set_info(tensor, without_made_up_names(info))
    if getattr(tensor, "output_info", None) is not None:
        tensor.output_info = tensor.info
    return True


def _in_words(tensor: gs.Tensor) -> str:
    if tensor.dtype is None:
        return str(tensor.info.type.WhichOneof("value")).removesuffix("_type")
    if tensor.shape is None:
        return f"{tensor.dtype}, rank unknown"
    return f"{tensor.dtype}[{', '.join('?' if d is None else str(d) for d in tensor.shape)}]"
