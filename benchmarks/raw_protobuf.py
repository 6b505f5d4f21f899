"""The job as one writes it by hand for one network, on protobuf messages and dictionaries.

It is the yardstick: nothing is checked, reported or kept general, and nothing is wasted. Every
BatchNormalization is folded in float64 into the Conv in front of it. Then every Conv input gets
one QuantizeLinear/DequantizeLinear pair, which all readers of that tensor share, and every Conv
weight becomes int8 codes behind a DequantizeLinear.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from benchmarks.models import Chain


def fold_and_quantize(chain: Chain) -> bytes:
    """Serialized model in, serialized model out."""
    model = onnx.load_model_from_string(chain.data)
    graph = model.graph
    initializers = {t.name: t for t in graph.initializer}
    nodes = _fold(graph, initializers)
    nodes = _quantize(nodes, initializers, chain)
    used = {name for node in nodes for name in node.input}
    del graph.node[:]
    graph.node.extend(nodes)
    kept = [t for name, t in initializers.items() if name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return model.SerializeToString()


def _fold(graph: onnx.GraphProto, initializers: dict[str, TensorProto]) -> list[NodeProto]:
    reads = Counter(name for node in graph.node for name in node.input)
    reads.update(output.name for output in graph.output)
    convs = {node.output[0]: node for node in graph.node if node.op_type == "Conv"}
    kept = []
    for node in graph.node:
        conv = convs.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if conv is None or reads[node.input[0]] != 1:
            kept.append(node)
            continue
        gamma, beta, mean, variance = (
            numpy_helper.to_array(initializers[name]) for name in node.input[1:5]
        )
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        gain = gamma / np.sqrt(variance.astype(np.float64) + epsilon)
        shift = beta - mean * gain
        weight = numpy_helper.to_array(initializers[conv.input[1]])
        folded = (weight * gain[:, None, None, None]).astype(np.float32)
        name = f"{conv.input[1]}.folded"
        initializers[name] = numpy_helper.from_array(folded, name)
        conv.input[1] = name
        if len(conv.input) > 2:
            bias = numpy_helper.to_array(initializers[conv.input[2]])
            shift = bias * gain + shift
            del conv.input[2:]
        name = f"{conv.name}.bias"
        initializers[name] = numpy_helper.from_array(shift.astype(np.float32), name)
        conv.input.append(name)
        conv.output[0] = node.output[0]
    return kept


def _quantize(
    nodes: list[NodeProto], initializers: dict[str, TensorProto], chain: Chain
) -> list[NodeProto]:
    activations = chain.activations
    made: list[NodeProto] = []

    def add_pair(tensor: str) -> None:
        scale, zero_point = activations[tensor]
        names = [f"{tensor}.scale", f"{tensor}.zero_point"]
        for name, value in zip(names, (np.float32(scale), np.uint8(zero_point)), strict=True):
            initializers[name] = numpy_helper.from_array(np.asarray(value), name)
        codes = f"{tensor}.codes"
        made.append(
            helper.make_node("QuantizeLinear", [tensor, *names], [codes], f"{tensor}.quantize")
        )
        made.append(
            helper.make_node(
                "DequantizeLinear", [codes, *names], [f"{tensor}.q"], f"{tensor}.dequantize"
            )
        )

    for tensor in activations.keys() - {name for node in nodes for name in node.output}:
        add_pair(tensor)  # graph inputs
    for node in nodes:
        for i, name in enumerate(node.input):
            if name in activations:
                node.input[i] = f"{name}.q"
        if node.op_type == "Conv":
            made.append(_store_weight(node, initializers, chain))
        made.append(node)
        for name in node.output:
            if name in activations:
                add_pair(name)
    return made


def _store_weight(conv: NodeProto, initializers: dict[str, TensorProto], chain: Chain) -> NodeProto:
    name = conv.input[1]
    scale = chain.weights[name.removesuffix(".folded")]
    weight = numpy_helper.to_array(initializers[name])
    codes = np.clip(np.rint(weight / scale[:, None, None, None]), -128, 127).astype(np.int8)
    names = [f"{name}.int8", f"{name}.scale", f"{name}.zero_point"]
    for stored, value in zip(names, (codes, scale, np.zeros(len(scale), np.int8)), strict=True):
        initializers[stored] = numpy_helper.from_array(value, stored)
    conv.input[1] = f"{name}.q"
    return helper.make_node("DequantizeLinear", names, [f"{name}.q"], f"{name}.dequantize", axis=0)
