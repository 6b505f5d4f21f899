"""Which operators of a quantized model onnxruntime runs in integers, and why not the others.

onnxruntime is asked twice: for the graph before it chooses integer operators and for the one with
them. The second shows what runs on codes. In the first, every operator is between the quantizers
that onnxruntime sees, which is where `reasons` finds out why it stays in float.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from onnx import ModelProto, NodeProto

from onnxq.errors import OnnxqError
from onnxq.graph import Model
from onnxq.operators.fused_operators import RULES
from onnxq.operators.integer_operators import find
from onnxq.ort_fusion import refusals
from onnxq.ort_fusion.clips import is_redundant
from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, Operation, OrtGraph, graphs_of
from onnxq.ort_fusion.probe import Probe, key_of, name_nodes, op_of, probe
from onnxq.ort_fusion.reasons import StaysFloat, kernel_for, runs_on_codes
from onnxq.ort_fusion.refusals import Refusal
from onnxq.running.optimizer import Level, optimize
from onnxq.running.ort_errors import reason


@dataclass(frozen=True)
class Prediction:
    """How onnxruntime runs one node."""

    output: str
    """The first output of the node."""
    op: str
    kernel: str
    """The operator that runs on codes, '' if it computes in float."""
    rule: str = ""
    """Short name of the reason that it computes in float."""
    reason: str = ""
    requantized: bool = False
    """Whether onnxruntime quantizes the float weight itself, with a range of its own."""
    merged_into: str = ""
    """The first output of the node that also computes this one, if there is one."""

    @property
    def integer(self) -> bool:
        """Whether the node runs on codes."""
        return bool(self.kernel)


@dataclass(frozen=True)
class Outlook:
    """How onnxruntime runs a model."""

    nodes: Mapping[str, Prediction]
    """By the first output of the node; quantizers are not listed."""
    refusals: tuple[Refusal, ...]


def predict(model: Model) -> Outlook:
    """How onnxruntime's default session runs every node, in the order of the model."""
    asked = probe(model)
    return outlook(asked, *_ask(asked, "extended"))


def outlook(asked: Probe, real: ModelProto | None, refused: OnnxqError | None) -> Outlook:
    """How onnxruntime runs a probe, given its optimised graph, or why there is none.

    Without either, the rules alone decide, which tests compare with the truth.
    """
    before, refused_early = _ask(asked, "basic")
    if before is None:
        before, refused_at_all = _ask(asked, "none")
        if before is None:
            assert refused_at_all is not None
            return Outlook(dict(_unknown(asked)), _in_its_own_words(asked, refused_at_all))
    found, faults = _judge_all(asked, before, real)
    if real is not None:
        faults = [fault for fault in faults if fault.loads is not False]
    elif refused is not None and all(fault.loads is not False for fault in faults):
        faults += _in_its_own_words(asked, refused)
    return Outlook(found if refused_early is None else {}, tuple(faults))


def _judge_all(
    asked: Probe, before: ModelProto, real: ModelProto | None
) -> tuple[dict[str, Prediction], list[Refusal]]:
    operations = _by_source(before, asked)
    became = {} if real is None else _by_source(real, asked)
    merged = dict(_merged(asked, operations))
    biases = dict(_biases(asked, merged))
    found = dict(_unknown(asked))
    faults: list[Refusal | None] = []
    for number, node in enumerate(asked.nodes):
        key = key_of(node)
        into = key_of(asked.nodes[merged[number]]) if number in merged else ""
        if into in found:
            found[key] = replace(found[into], output=key, op=op_of(node), merged_into=into)
        for graph, operation in operations.get(number, ()):
            if number in asked.computed or not _is_same(operation, node):
                continue
            if is_redundant(graph, operation):
                continue
            judged = found[key] = _judge(graph, operation, key, became.get(number, []))
            bias = asked.value(biases.get(number, ""))
            faults.append(refusals.of_types(graph, operation, key))
            faults.append(refusals.of_bias(graph, operation, key, bias))
            if judged.integer:
                faults.append(refusals.of_kernel(graph, operation, key, judged.kernel))
    return found, [fault for fault in faults if fault is not None]


# -- onnxruntime's answers --------------------------------------------------------------------


def _ask(asked: Probe, level: Level) -> tuple[ModelProto | None, OnnxqError | None]:
    """The graph at a level, or why there is none."""
    try:
        return optimize(asked.proto, level), None
    except OnnxqError as refused:
        return None, refused


def _in_its_own_words(asked: Probe, refused: OnnxqError) -> tuple[Refusal, ...]:
    """A refusal that no rule explains."""
    if asked.unknown:
        return ()  # a library of the user may complete the model
    words = refused.what if refused.__cause__ is None else reason(refused.__cause__)
    number, words = name_nodes(asked, words)
    output = "" if number < 0 else key_of(asked.nodes[number])
    return (Refusal(output, words, fix=refused.fix or "correct the model"),)


# -- nodes of the model in onnxruntime's graph ------------------------------------------------

Found = list[tuple[OrtGraph, Operation]]


def _by_source(model: ModelProto, asked: Probe) -> dict[int, Found]:
    """The operations that each node became."""
    found: dict[int, Found] = {}
    for graph in graphs_of(model, asked):
        for operation in graph.operations:
            if operation.source >= 0 and operation.op not in (QUANTIZE, DEQUANTIZE):
                found.setdefault(operation.source, []).append((graph, operation))
    return found


def _is_same(operation: Operation, node: NodeProto) -> bool:
    """Whether `operation` is the node itself, rather than something added around it."""
    return operation.op == op_of(node) or (operation.op, node.op_type) == ("Gemm", "MatMul")


def _merged(asked: Probe, operations: Mapping[int, Found]) -> Iterator[tuple[int, int]]:
    """Nodes after a Conv or MatMul that are gone, each with the layer that computes them now."""
    layers: dict[str, int] = {}
    for number, node in enumerate(asked.nodes):
        if number in operations:
            if node.op_type in ("Conv", "MatMul"):
                layers[node.output[0]] = number
        elif node.op_type in ("BatchNormalization", "Add", "Mul"):
            into = next((layers[name] for name in node.input if name in layers), None)
            if into is not None:
                layers[node.output[0]] = into
                yield number, into


def _biases(asked: Probe, merged: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """The names of the float biases of layers, except those that onnxruntime computes."""
    taken = Counter(merged.values())
    for number, node in enumerate(asked.nodes):
        if number not in taken and len(node.input) > 2:
            yield number, node.input[2]
        into = merged.get(number, -1)
        if taken[into] == 1 and asked.nodes[into].op_type == "MatMul":
            product = asked.nodes[into].output[0]
            yield into, next((name for name in node.input if name != product), "")


def _unknown(asked: Probe) -> Iterator[tuple[str, Prediction]]:
    for number in sorted(asked.unknown):
        key, op = key_of(asked.nodes[number]), op_of(asked.nodes[number])
        why = f"onnxruntime has no integer kernel for {op}"
        yield key, Prediction(key, op, "", "no-integer-kernel", why)


# -- one node ---------------------------------------------------------------------------------


def _judge(graph: OrtGraph, operation: Operation, key: str, became: Found) -> Prediction:
    """The prediction for one node: its kernel is that of onnxruntime's graph, if it is there."""
    why = StaysFloat("unexplained", "onnxruntime leaves it so, for a reason not known here")
    try:
        kernel = kernel_for(graph, operation)
    except StaysFloat as found:
        kernel, why = "", found
    if became and not runs_on_codes(operation.op):
        kernel = next(filter(None, (_runs_as(graph, operation, *pair) for pair in became)), "")
    if kernel:
        weight = graph.made_by(operation.given(1), DEQUANTIZE)
        # A DQ with the source of the layer was added by onnxruntime.
        requantized = weight is not None and weight.source == operation.source
        return Prediction(key, operation.op, kernel, requantized=requantized)
    return Prediction(key, operation.op, "", why.rule, why.reason)


def _runs_as(graph: OrtGraph, operation: Operation, final: OrtGraph, became: Operation) -> str:
    """The integer operator that `operation` became, '' if it computes in float."""
    domain, _, op = became.op.rpartition("::")
    if find(domain, op) is not None or op == "MatMulIntegerToFloat":
        return op
    if became.op != operation.op or op not in RULES or RULES[op].form != "moves":
        return ""
    before, after = (
        any(g.made_by(name, DEQUANTIZE) for name in o.inputs)
        for g, o in ((graph, operation), (final, became))
    )
    return op if before and not after else ""
