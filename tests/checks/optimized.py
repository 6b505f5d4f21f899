"""What onnxruntime really makes of a model, node by node: the truth that predictions are held to.

Fused nodes keep the name of the operator they replace (with a suffix), but not always the names of
tensors, and models may have nodes without names. So every node gets a name of its own first.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

import onnx

from onnxq.running.sessions import Kind, optimized_graph, walk

INTEGER_OPS = {
    *("QLinearConv", "QGemm", "QLinearMatMul", "MatMulIntegerToFloat", "QLinearAdd", "QLinearMul"),
    *("QLinearConcat", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu"),
    *("QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
}
"""The operators that onnxruntime fuses quantized ones into."""


@dataclass(frozen=True)
class Optimized:
    """The nodes of a model after optimisation."""

    ops: dict[str, set[str]]
    """What a node became, by the first tensor that it makes in the model."""
    kernels: Counter[str]
    """How often each integer operator occurs."""

    def is_integer(self, output: str) -> bool:
        """Whether the node that makes `output` became an integer operator of its own."""
        return bool(self.ops.get(output, set()) & INTEGER_OPS)


def optimized(proto: onnx.ModelProto, kind: Kind) -> Optimized:
    """Let onnxruntime optimise `proto` and find its nodes again."""
    named = onnx.ModelProto()
    named.CopyFrom(proto)
    outputs: dict[str, str] = {}
    for node in walk(named.graph):
        node.name = f"node{len(outputs)}z"
        outputs[node.name] = next((name for name in node.output if name), "")
    ops: defaultdict[str, set[str]] = defaultdict(set)
    kernels: Counter[str] = Counter()
    for node in walk(optimized_graph(named, kind)):
        if node.op_type in INTEGER_OPS:
            kernels[node.op_type] += 1
        found = re.match(r"node\d+z", node.name)
        if found:
            ops[outputs[found[0]]].add(node.op_type)
    return Optimized(dict(ops), kernels)
