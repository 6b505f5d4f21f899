"""Which operators of a quantized model onnxruntime runs in integers, and why the others do not.

onnxruntime is asked twice: for the graph before it chooses integer operators and for the one with
them. The second tells what runs on codes. In the first, every operator is between the
quantizers that onnxruntime sees, which tells why it stays in float (`reasons`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from onnx import ModelProto, NodeProto

from onnxq.errors import OnnxqError
from onnxq.graph import Model
from onnxq.operators.fused_operators import RULES
from onnxq.operators.integer_operators import SUMS, find
from onnxq.ort_fusion import refusals
from onnxq.ort_fusion.clips import followed_by_its_quantizer
from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, OrtGraph, Step, graphs_of
from onnxq.ort_fusion.probe import Probe, key_of, name_nodes, probe
from onnxq.ort_fusion.reasons import StaysFloat, kernel_for
from onnxq.ort_fusion.refusals import Refusal
from onnxq.running.optimizer import Level, optimize
from onnxq.running.ort_errors import reason


@dataclass(frozen=True)
class Prediction:
    """What onnxruntime does with one node."""

    output: str
    """The first tensor that the node makes."""
    op: str
    kernel: str
    """The operator that runs on codes, '' where it computes in float."""
    rule: str = ""
    """Short name of what keeps it in float."""
    reason: str = ""
    requantized: bool = False
    """Whether onnxruntime quantizes the float weight itself, with a range of its own."""
    merged_into: str = ""
    """Output of the node that computes this one as well, where it is not one of its own."""

    @property
    def integer(self) -> bool:
        """Whether the node runs on codes."""
        return bool(self.kernel)


@dataclass(frozen=True)
class Outlook:
    """What onnxruntime does with a model."""

    nodes: Mapping[str, Prediction]
    """By the first tensor that the node makes; quantizers are not listed."""
    refusals: tuple[Refusal, ...]


def predict(model: Model) -> Outlook:
    """What onnxruntime's default session makes of every node, in the order of the model."""
    return outlook(probe(model))


def outlook(asked: Probe, *, by_rules: bool = False) -> Outlook:
    """What onnxruntime makes of a probe.

    `by_rules`: say what the rules alone expect, which tests compare with what is true.
    """
    real, refused = _ask(asked, "extended")
    before, refused_early = _ask(asked, "basic")
    if before is None:
        before, refused_at_all = _ask(asked, "none")
        if before is None:
            assert refused_at_all is not None
            return Outlook(dict(_unknown(asked)), _in_its_own_words(asked, refused_at_all))
    found, faults = _judge_all(asked, before, None if by_rules else real)
    if real is not None and not by_rules:
        faults = [fault for fault in faults if fault.loads is not False]
    elif refused is not None and all(fault.loads is not False for fault in faults):
        faults += _in_its_own_words(asked, refused)
    return Outlook(found if refused_early is None else {}, tuple(faults))


def _judge_all(
    asked: Probe, before: ModelProto, real: ModelProto | None
) -> tuple[dict[str, Prediction], list[Refusal]]:
    steps = _by_source(before, asked)
    made = {} if real is None else _by_source(real, asked)
    merged = dict(_merged(asked, steps))
    biases = dict(_biases(asked, merged))
    found = dict(_unknown(asked))
    faults: list[Refusal] = []
    for number, node in enumerate(asked.nodes):
        key = key_of(node)
        into = key_of(asked.nodes[merged[number]]) if number in merged else ""
        if into in found:
            found[key] = replace(found[into], output=key, op=_op(node), merged_into=into)
        for graph, step in steps.get(number, ()):
            if number in asked.computed or not _is_same(step, node):
                continue
            if followed_by_its_quantizer(graph, step):
                continue
            judged = found[key] = _judge(graph, step, key, made.get(number, []))
            faults += refusals.of_types(graph, step, key)
            faults += refusals.of_bias(graph, step, key, asked.value(biases.get(number, "")))
            if judged.integer:
                faults += refusals.of_kernel(graph, step, key, judged.kernel)
    return found, faults


# -- what onnxruntime says --------------------------------------------------------------------


def _ask(asked: Probe, level: Level) -> tuple[ModelProto | None, OnnxqError | None]:
    """The graph at a level, or why there is none."""
    try:
        return optimize(asked.proto, level), None
    except OnnxqError as refused:
        return None, refused


def _in_its_own_words(asked: Probe, refused: OnnxqError) -> tuple[Refusal, ...]:
    """A refusal that no rule explains."""
    if asked.unknown:
        return ()  # a library of the user's may make the model whole
    words = refused.what if refused.__cause__ is None else reason(refused.__cause__)
    number, words = name_nodes(asked, words)
    output = "" if number < 0 else key_of(asked.nodes[number])
    return (Refusal(output, words, fix=refused.fix or "correct the model"),)


# -- nodes of the model in onnxruntime's graph ------------------------------------------------

Found = list[tuple[OrtGraph, Step]]


def _by_source(model: ModelProto, asked: Probe) -> dict[int, Found]:
    """What became of each node."""
    found: dict[int, Found] = {}
    for graph in graphs_of(model, asked):
        for step in graph:
            if step.source >= 0 and step.op not in (QUANTIZE, DEQUANTIZE):
                found.setdefault(step.source, []).append((graph, step))
    return found


def _op(node: NodeProto) -> str:
    domain = "" if node.domain == "ai.onnx" else node.domain
    return f"{domain}::{node.op_type}" if domain else str(node.op_type)


def _is_same(step: Step, node: NodeProto) -> bool:
    """Whether `step` is the node itself, rather than something that was put around it."""
    return step.op == _op(node) or (step.op, node.op_type) == ("Gemm", "MatMul")


def _merged(asked: Probe, steps: Mapping[int, Found]) -> Iterator[tuple[int, int]]:
    """Steps behind a Conv or MatMul that are gone, each with the layer that computes them now."""
    layers: dict[str, int] = {}
    for number, node in enumerate(asked.nodes):
        if number in steps:
            if node.op_type in ("Conv", "MatMul"):
                layers[node.output[0]] = number
        elif node.op_type in ("BatchNormalization", "Add", "Mul"):
            into = next((layers[name] for name in node.input if name in layers), None)
            if into is not None:
                layers[node.output[0]] = into
                yield number, into


def _biases(asked: Probe, merged: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """The names of the float biases of layers, but for those that onnxruntime computes."""
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
        key, op = key_of(asked.nodes[number]), _op(asked.nodes[number])
        why = f"onnxruntime has no integer kernel for {op}"
        yield key, Prediction(key, op, "", "no-integer-kernel", why)


# -- one node ---------------------------------------------------------------------------------


def _judge(graph: OrtGraph, step: Step, key: str, became: Found) -> Prediction:
    try:
        kernel = kernel_for(graph, step)
        made = Prediction(key, step.op, kernel, requantized=_is_requantized(graph, step))
    except StaysFloat as why:
        made = Prediction(key, step.op, "", why.rule, why.reason)
    if not became or _asks_for_codes(step):
        return made
    real = next(filter(None, (_runs_as(graph, step, *pair) for pair in became)), "")
    if real and real != made.kernel:
        return Prediction(key, step.op, real, requantized=_is_requantized(graph, step))
    if made.kernel and not real:
        unknown = "onnxruntime leaves it so, for a reason that is not known here"
        return Prediction(key, step.op, "", "unexplained", unknown)
    return made


def _asks_for_codes(step: Step) -> bool:
    domain, _, op = step.op.rpartition("::")
    return find(domain, op) is not None or step.op in SUMS


def _runs_as(graph: OrtGraph, step: Step, final: OrtGraph, became: Step) -> str:
    """The integer operator that `step` became, '' if it computes in float."""
    domain, _, op = became.op.rpartition("::")
    if find(domain, op) is not None or op == "MatMulIntegerToFloat":
        return op
    if became.op == step.op and step.op in RULES and RULES[step.op].form == "moves":
        before, after = (
            any(g.made_by(name, DEQUANTIZE) for name in s.inputs)
            for g, s in ((graph, step), (final, became))
        )
        return op if before and not after else ""
    return ""


def _is_requantized(graph: OrtGraph, step: Step) -> bool:
    """Whether the DQ of a weight came with the layer, from onnxruntime."""
    weight = graph.made_by(step.given(1), DEQUANTIZE)
    return weight is not None and weight.source == step.source
