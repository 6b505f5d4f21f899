"""A model as onnxruntime is asked about it: nodes with known names, and without large weights.

onnxruntime names the result of an optimisation after the node it came from, so every node gets a
name that can be recognised. Its decisions depend on types, shapes and small constants, hardly ever
on the values of weights: large ones become inputs of the graph. That would change one thing. A
float weight between quantized tensors is quantized by onnxruntime only if it is a constant, so a
large one is replaced by codes with a DQ, which is what onnxruntime would make of it.

Operators that only a library of the user defines are removed: their outputs become graph inputs,
their inputs graph outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import onnx_graphsurgeon as gs
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper

from onnxq.graph import Model
from onnxq.quant.qparams import Array
from onnxq.storage.function_form import all_nodes
from onnxq.storage.tensors import stored_size, to_external, to_tensor_proto

LARGE = 1 << 16
LARGE_VECTOR = 1 << 20
"""Constants of at least this many bytes lose their values; scales and biases are vectors."""

_BARE = "onnxq: without values"
_PREFIX = "onnxq-node-"
_NAME = re.compile(_PREFIX + r"(\d+)\.")
_ONNX = ("", "ai.onnx")
_ELEMENTWISE = ("QuantizeLinear", "Clip", "DequantizeLinear")
_ACTIVATIONS = ("Relu", "Clip")
_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class Probe:
    """A model for onnxruntime, and how to recognise its nodes in an optimised graph."""

    proto: ModelProto
    nodes: list[NodeProto]
    """All nodes of the model, those of bodies after the node that holds them."""
    constants: dict[str, TensorProto]
    large: set[str]
    """Constants without values."""
    tensors: set[str]
    """The names of all tensors of the model."""
    computed: set[int] = field(default_factory=set)
    """Numbers of the nodes that depend on large constants alone and are computed at load."""
    unknown: set[int] = field(default_factory=set)
    """Numbers of the nodes whose operator onnxruntime does not have."""

    def value(self, name: str) -> Array | None:
        """The value of a small constant."""
        tensor = self.constants.get(name)
        return None if tensor is None or name in self.large else numpy_helper.to_array(tensor)

    def rank(self, name: str) -> int:
        """The number of dimensions of a constant; -1 if `name` is not one."""
        return len(self.constants[name].dims) if name in self.constants else -1


def op_of(node: NodeProto) -> str:
    """The operator of a node: 'Op', or 'domain::Op'."""
    return str(node.op_type if node.domain in _ONNX else f"{node.domain}::{node.op_type}")


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The subgraphs of an If, Loop or Scan."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def name_for(number: int) -> str:
    """The name by which node `number` of a model is recognised; `source_of` is the inverse."""
    return f"{_PREFIX}{number}."


def source_of(name: str) -> int:
    """Number of the node that a node of onnxruntime's graph comes from; -1 if there is none."""
    found = _NAME.match(name)
    return int(found[1]) if found else -1


def key_of(node: NodeProto) -> str:
    """The name of a node in predictions: that of its first output."""
    return next((name for name in node.output if name), str(node.name))


def name_nodes(probe: Probe, words: str) -> tuple[int, str]:
    """The first node that a message of onnxruntime names (-1: none), and the message with keys."""
    first = _NAME.search(words)
    named = _NAME.sub(lambda found: key_of(probe.nodes[int(found[1])]), words)
    return (int(first[1]) if first else -1), named


def probe(model: Model) -> Probe:
    """A probe of `model`."""
    proto = model.to_proto(_written)
    nodes = list(all_nodes(proto.graph.node))
    for number, node in enumerate(nodes):
        node.name = name_for(number)
    tensors = {name for node in nodes for name in (*node.input, *node.output)}
    constants = _constants(proto.graph)
    large = {name for name, tensor in constants.items() if _is_bare(tensor)}
    if proto.ir_version >= 4:
        large -= {info.name for info in proto.graph.input}  # the caller may replace them
    made = Probe(proto, nodes, constants, large, tensors)
    made.computed.update(_computed(made))
    _leave_unknown_out(made)
    if any(map(_is_bare, constants.values())):
        consumers = _consumers(proto.graph)
        _transpose_weights(made, consumers)
        _replace_float_weights(made, consumers)
        _leave_values_out(made)
    return made


def _written(constant: gs.Constant) -> TensorProto:
    most = LARGE if len(constant.shape) > 1 else LARGE_VECTOR
    if stored_size(constant) < most:
        return to_tensor_proto(constant)
    bare = to_external(constant)[0]
    bare.doc_string = _BARE
    return bare


def _is_bare(tensor: TensorProto) -> bool:
    return bool(tensor.doc_string == _BARE)


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in all_nodes(graph.node):
        yield from bodies(node)


def _constants(graph: GraphProto) -> dict[str, TensorProto]:
    found = {tensor.name: tensor for body in _graphs(graph) for tensor in body.initializer}
    for node in all_nodes(graph.node):
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            found[node.output[0]] = node.attribute[0].t
    return found


def _computed(made: Probe) -> Iterator[int]:
    large = set(made.large)
    given = {info.name for info in made.proto.graph.input} - large
    known = made.constants.keys() - given
    for number, node in enumerate(made.nodes) if large else ():
        if node.op_type != "DequantizeLinear" and known.issuperset(filter(None, node.input)):
            known.update(node.output)
            if not large.isdisjoint(node.input):
                large.update(node.output)
                yield number


def _leave_unknown_out(made: Probe) -> None:
    """Remove the nodes of the main graph whose operator onnxruntime does not have."""
    graph = made.proto.graph
    functions = {(f.domain, f.name) for f in made.proto.functions}
    made.unknown.update(n for n, node in enumerate(made.nodes) if _is_unknown(node, functions))
    if not made.unknown:
        return
    types = {info.name: info for info in (*graph.value_info, *graph.output)}
    made_here = {name for node in graph.node for name in node.output}
    leaving = {info.name for info in graph.output}
    kept = []
    for node in graph.node:
        if source_of(node.name) not in made.unknown:
            kept.append(node)
            continue
        for name in dict.fromkeys(filter(None, node.output)):
            plain = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            graph.input.append(types.get(name, plain))
        for name in dict.fromkeys(node.input):
            if name in made_here and name not in leaving:
                leaving.add(name)
                graph.output.add(name=name)
    _keep(graph.node, kept)


def _is_unknown(node: NodeProto, functions: set[tuple[str, str]]) -> bool:
    if (node.domain, node.op_type) in functions:
        return False
    if node.domain in (*_ONNX, "ai.onnx.ml"):
        return not defs.has(node.op_type, "" if node.domain in _ONNX else node.domain)
    return not node.domain.startswith(("com.microsoft", "com.ms."))


def _keep(field: Any, items: Iterable[Any]) -> None:
    """Set a repeated field to some of its items and new ones."""
    kept = list(items)
    del field[:]
    field.extend(kept)


Consumers = dict[str, list[NodeProto]]


def _consumers(graph: GraphProto) -> Consumers:
    """The consumers of each tensor; a graph output has none."""
    consumers: Consumers = {}
    for node in all_nodes(graph.node):
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    return consumers | {info.name: [] for body in _graphs(graph) for info in body.output}


def _transpose_weights(made: Probe, consumers: Consumers) -> None:
    """Transpose large weights with their quantizers if onnxruntime does so at load."""
    graph = made.proto.graph
    gone: set[str] = set()
    stale: set[str] = set()
    for name in sorted(made.large):
        chain, end = [], name
        while len(found := consumers.get(end, [])) == 1 and found[0].op_type in _ELEMENTWISE:
            chain.append(found[0])
            end = chain[-1].output[0]
        if len(found) != 1 or found[0].op_type != "Transpose":
            continue
        turn, weight = found[0], made.constants[name]
        perm = next((list(a.ints) for a in turn.attribute), list(range(len(weight.dims)))[::-1])
        if any(len(n.input) > 1 and made.rank(n.input[1]) > 1 for n in chain):
            continue  # one scale per block
        weight.dims[:] = [weight.dims[axis] for axis in perm]
        for node in chain:
            for attribute in node.attribute:
                if attribute.name == "axis" and made.rank(node.input[1]) == 1:
                    attribute.i = perm.index(attribute.i % len(perm))
        gone.add(turn.name)
        stale.update((name, *(node.output[0] for node in chain)))
        if chain:
            chain[-1].output[0] = turn.output[0]
        else:
            made.large.remove(name)
            made.large.add(turn.output[0])
            made.constants[turn.output[0]] = weight
    _keep(graph.node, (node for node in graph.node if node.name not in gone))
    _keep(graph.value_info, (info for info in graph.value_info if info.name not in stale))


def _replace_float_weights(made: Probe, consumers: Consumers) -> None:
    """Replace large float weights that onnxruntime would quantize by codes with a DQ."""
    graph = made.proto.graph
    added = []
    for node in graph.node:
        weight = made.constants.get(node.input[1]) if node.op_type in _LAYERS else None
        if weight is None or not _is_bare(weight) or weight.data_type != TensorProto.FLOAT:
            continue
        quantizer = _quantizer_after(node, consumers)
        if quantizer is None:
            continue
        names = [f"{node.name}{part}" for part in ("codes", "scale", "zero", "weight")]
        codes = helper.make_tensor_value_info(names[0], TensorProto.INT8, weight.dims)
        graph.input.append(codes)
        graph.initializer.append(helper.make_tensor(names[1], TensorProto.FLOAT, (), [1.0]))
        graph.initializer.append(helper.make_tensor(names[2], TensorProto.INT8, (), [0]))
        added.append(
            helper.make_node(
                "DequantizeLinear", names[:3], names[3:], names[3], domain=quantizer.domain
            )
        )
        node.input[1] = names[3]
    _keep(graph.node, (*added, *graph.node))


def _quantizer_after(node: NodeProto, consumers: Consumers) -> NodeProto | None:
    """The Q after a layer, with nothing but Relu and Clip in between.

    onnxruntime quantizes the weight of a MatMul only if an Add turns it into a Gemm.
    """
    passed = ("Add",) if node.op_type == "MatMul" else _ACTIVATIONS
    while True:
        found = consumers.get(node.output[0], [])
        if len(found) != 1 or found[0].op_type not in (*passed, "QuantizeLinear"):
            return None
        (node,) = found
        if node.op_type == "QuantizeLinear":
            return node if passed is _ACTIVATIONS else None
        passed = _ACTIVATIONS


def _leave_values_out(made: Probe) -> None:
    """Turn constants without values into inputs of the main graph, which bodies see, too."""
    main = made.proto.graph
    weights = [(name, made.constants[name]) for name in sorted(made.large)]
    added = [helper.make_tensor_value_info(n, w.data_type, w.dims) for n, w in weights]
    _keep(main.input, [*(info for info in main.input if info.name not in made.large), *added])
    for graph in _graphs(main):  # one after the other: new nodes have new bodies
        _keep(graph.initializer, (t for t in graph.initializer if not _is_bare(t)))
        bare = {n.name for n in graph.node if any(_is_bare(a.t) for a in n.attribute)}
        _keep(graph.node, (node for node in graph.node if node.name not in bare))
