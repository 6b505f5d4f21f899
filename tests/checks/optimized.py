"""What onnxruntime really makes of a model, node by node: the truth that predictions are held to.

Fused nodes keep the name of the operator they replace (with a suffix), but not always the names of
tensors, and models may have nodes without names. So every node gets a name of its own first.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

import onnx

from onnxq.disk.scratch import scratch_folder
from onnxq.running import ort_session, sessions
from onnxq.running.ort_crashes import check_survives
from onnxq.running.sessions import Kind, ModelSource
from onnxq.storage.function_form import all_nodes

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
    for node in all_nodes(named.graph.node):
        node.name = f"node{len(outputs)}z"
        outputs[node.name] = next((name for name in node.output if name), "")
    ops: defaultdict[str, set[str]] = defaultdict(set)
    kernels: Counter[str] = Counter()
    for node in all_nodes(optimized_graph(named, kind).node):
        if node.op_type in INTEGER_OPS:
            kernels[node.op_type] += 1
        found = re.match(r"node\d+z", node.name)
        if found:
            ops[outputs[found[0]]].add(node.op_type)
    return Optimized(dict(ops), kernels)


def optimized_ops(source: ModelSource, kind: Kind = "deployed", **config: str) -> Counter[str]:
    """How often each operator type occurs in the graph that onnxruntime really runs.

    Types are counted without their domain: onnxruntime moves QLinearConv to its own domain if it
    prefers channels last. `config` holds further session entries, as in
    `optimized_ops(m, **{"session.qdqisint8allowed": "1"})`.
    """
    return Counter(node.op_type for node in all_nodes(optimized_graph(source, kind, **config).node))


def optimized_graph(source: ModelSource, kind: Kind = "deployed", **config: str) -> onnx.GraphProto:
    """The graph that onnxruntime really runs."""
    level, entries = sessions._KINDS[kind]
    options = ort_session.new_options(level, {**entries, **config})
    with scratch_folder() as folder:
        options.optimized_model_filepath = str(folder / "optimized.onnx")
        opened = sessions.open_model(source)
        check_survives(opened.proto, opened.label, optimized=True)
        ort_session.start(opened.proto.SerializeToString(), opened.label, options)
        return onnx.load(folder / "optimized.onnx").graph
