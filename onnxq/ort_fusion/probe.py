"""A model as onnxruntime is asked about it: nodes with known names, and without large weights.

onnxruntime names what it makes of a node after that node, so every node gets a name that is found
again. What it decides depends on types, shapes and small constants, hardly ever on the values of
weights: large ones become inputs of the graph. One thing would change by that. A float weight
between quantized tensors is quantized by onnxruntime only if it is a constant, so a large one is
replaced by codes with a DQ, which is what onnxruntime would make of it.

Operators that only a library of the user's knows are left out: what they make is an input, what
they read an output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_graphsurgeon as gs
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper

from onnxq.graph import Model
from onnxq.quant.qparams import Array
from onnxq.storage.tensors import stored_size, to_external, to_tensor_proto

LARGE = 1 << 16
LARGE_VECTOR = 1 << 20
"""Bytes from which on a constant goes without its values; scales and biases are vectors."""

_BARE = "onnxq: without values"
_PREFIX = "onnxq-node-"
_NAME = re.compile(_PREFIX + r"(\d+)\.")
_ELEMENTWISE = ("QuantizeLinear", "Clip", "DequantizeLinear")
_ACTIVATIONS = ("Relu", "Clip")
_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class Probe:
    """What onnxruntime is given, and how to find the nodes of the model in what it makes of it."""

    proto: ModelProto
    nodes: list[NodeProto]
    """All nodes of the model, those of bodies behind the node that holds them."""
    constants: dict[str, TensorProto]
    large: set[str]
    """Constants without values."""
    tensors: set[str]
    """The names of all tensors of the model."""
    computed: set[int] = field(default_factory=set)
    """Numbers of the nodes that compute something from large constants alone, at load."""
    unknown: set[int] = field(default_factory=set)
    """Numbers of the nodes that onnxruntime does not know."""

    def value(self, name: str) -> Array | None:
        """The value of a small constant."""
        tensor = self.constants.get(name)
        return None if tensor is None or name in self.large else numpy_helper.to_array(tensor)

    def rank(self, name: str) -> int:
        """How many dimensions a constant has; -1 for what is no constant."""
        return len(self.constants[name].dims) if name in self.constants else -1


def source_of(name: str) -> int:
    """Number of the node that a node of onnxruntime's graph comes from; -1 for none."""
    found = _NAME.match(name)
    return int(found[1]) if found else -1


def key_of(node: NodeProto) -> str:
    """What a node is called here: the first tensor that it makes."""
    return next((name for name in node.output if name), str(node.name))


def name_nodes(probe: Probe, words: str) -> tuple[int, str]:
    """The first node that a message of onnxruntime names (-1: none), and the message with keys."""
    first = _NAME.search(words)
    named = _NAME.sub(lambda found: key_of(probe.nodes[int(found[1])]), words)
    return (int(first[1]) if first else -1), named


def probe(model: Model) -> Probe:
    """What to ask onnxruntime about `model`."""
    proto = model.to_proto(_written)
    nodes = list(_walk(proto.graph))
    for number, node in enumerate(nodes):
        node.name = f"{_PREFIX}{number}."
    tensors = {name for node in nodes for name in (*node.input, *node.output)}
    constants = _constants(proto.graph)
    large = {name for name, tensor in constants.items() if _is_bare(tensor)}
    if proto.ir_version >= 4:
        large -= {info.name for info in proto.graph.input}  # the caller may replace them
    made = Probe(proto, nodes, constants, large, tensors)
    made.computed.update(_computed(made))
    _leave_unknown_out(made)
    if any(map(_is_bare, constants.values())):
        readers = _readers(proto.graph)
        _transpose_weights(made, readers)
        _replace_float_weights(made, readers)
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


def _walk(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for body in _bodies(node):
            yield from _walk(body)


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in _walk(graph):
        yield from _bodies(node)


def _constants(graph: GraphProto) -> dict[str, TensorProto]:
    found = {tensor.name: tensor for body in _graphs(graph) for tensor in body.initializer}
    for node in _walk(graph):
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
    """Take nodes out of the main graph that onnxruntime does not know."""
    graph = made.proto.graph
    functions = {(f.domain, f.name) for f in made.proto.functions}
    for number, node in enumerate(made.nodes):
        if _is_unknown(node, functions):
            made.unknown.add(number)
    strangers = [node for node in graph.node if source_of(node.name) in made.unknown]
    if not strangers:
        return
    types = {info.name: info for info in (*graph.value_info, *graph.output)}
    makers = {name for node in graph.node for name in node.output}
    leaving = {info.name for info in graph.output}
    for node in strangers:
        for name in dict.fromkeys(filter(None, node.output)):
            plain = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            graph.input.append(types.get(name, plain))
        for name in dict.fromkeys(node.input):
            if name in makers and name not in leaving:
                leaving.add(name)
                graph.output.add(name=name)
    _set_nodes(graph, [n for n in graph.node if source_of(n.name) not in made.unknown])


def _is_unknown(node: NodeProto, functions: set[tuple[str, str]]) -> bool:
    if (node.domain, node.op_type) in functions:
        return False
    if node.domain in ("", "ai.onnx", "ai.onnx.ml"):
        return not defs.has(node.op_type, node.domain.removeprefix("ai.onnx") and node.domain)
    return not node.domain.startswith(("com.microsoft", "com.ms."))


def _set_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    del graph.node[:]
    graph.node.extend(nodes)


Readers = dict[str, list[NodeProto]]


def _readers(graph: GraphProto) -> Readers:
    """Who reads each tensor; for one that leaves the network, no one."""
    readers: Readers = {}
    for node in _walk(graph):
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers | {info.name: [] for body in _graphs(graph) for info in body.output}


def _transpose_weights(made: Probe, readers: Readers) -> None:
    """Give large weights transposed, with their quantizers, where onnxruntime does so at load."""
    graph = made.proto.graph
    gone: set[str] = set()
    stale: set[str] = set()
    for name in sorted(made.large):
        chain, end = [], name
        while len(found := readers.get(end, [])) == 1 and found[0].op_type in _ELEMENTWISE:
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
    if gone:
        _set_nodes(graph, [node for node in graph.node if node.name not in gone])
        kept = [info for info in graph.value_info if info.name not in stale]
        del graph.value_info[:]
        graph.value_info.extend(kept)


def _replace_float_weights(made: Probe, readers: Readers) -> None:
    """Give layers codes with a DQ where onnxruntime would quantize their large float weight."""
    graph = made.proto.graph
    added = []
    for node in graph.node:
        weight = made.constants.get(node.input[1]) if node.op_type in _LAYERS else None
        if weight is None or not _is_bare(weight) or weight.data_type != TensorProto.FLOAT:
            continue
        quantizer = _quantizer_behind(node, readers)
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
    _set_nodes(graph, [*added, *graph.node])


def _quantizer_behind(node: NodeProto, readers: Readers) -> NodeProto | None:
    """The Q that follows a layer, with nothing but Relu and Clip in between.

    onnxruntime quantizes the weight of a MatMul only where an Add makes a Gemm of it.
    """
    passed = ("Add",) if node.op_type == "MatMul" else _ACTIVATIONS
    while True:
        found = readers.get(node.output[0], [])
        if len(found) != 1 or found[0].op_type not in (*passed, "QuantizeLinear"):
            return None
        (node,) = found
        if node.op_type == "QuantizeLinear":
            return node if passed is _ACTIVATIONS else None
        passed = _ACTIVATIONS


def _leave_values_out(made: Probe) -> None:
    """Turn constants without values into inputs of the main graph; bodies see them there, too."""
    main = made.proto.graph
    inputs = [info for info in main.input if info.name not in made.large]
    for name in sorted(made.large):
        weight = made.constants[name]
        inputs.append(helper.make_tensor_value_info(name, weight.data_type, weight.dims))
    del main.input[:]
    main.input.extend(inputs)
    for graph in list(_graphs(main)):
        kept = [tensor for tensor in graph.initializer if not _is_bare(tensor)]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        bare = {n.name for n in graph.node if any(_is_bare(a.t) for a in n.attribute)}
        if bare:
            _set_nodes(graph, [node for node in graph.node if node.name not in bare])
