"""Quantizers carried across operators that only move values."""

from __future__ import annotations

from onnxq.ort_fusion.graph import BODY, DEQUANTIZE, QUANTIZE, OrtGraph, Step
from onnxq.ort_fusion.pairs import copy_type, has_scalar_parameters, insert_dq, insert_q, is_pair_op

PROPAGATED = {
    "MaxPool": 12,
    **dict.fromkeys(("Reshape", "Transpose", "Squeeze", "Unsqueeze"), 1),
    "Slice": 10,
}
"""Operators that a pair is carried across, with the first version for which that is done."""


def propagate_pairs(graph: OrtGraph) -> bool:
    """Carry DQ forward and Q backward across operators that only move values."""
    changed = False
    for step in graph:
        if is_pair_op(step, DEQUANTIZE) and has_scalar_parameters(graph, step):
            mover = graph.only_reader(step.output)
            if mover is not None and _can_propagate(mover) and mover.inputs[0] == step.output:
                changed |= _forward(graph, step, mover)
    for step in graph:
        if is_pair_op(step, QUANTIZE) and has_scalar_parameters(graph, step):
            changed |= _backward(graph, step)
    return changed


def _can_propagate(step: Step) -> bool:
    return step.op in PROPAGATED and step.since >= PROPAGATED[step.op]


def _forward(graph: OrtGraph, pair: Step, mover: Step) -> bool:
    """Put Q -> DQ behind `mover` and behind what follows it, for readers that are no Q."""
    changed = False
    stack = [mover]
    while stack:
        node = stack.pop()
        y = node.output
        if y in graph.outputs and graph.edges(y):
            continue
        edges = [(s, i) for s, i in graph.edges(y) if not is_pair_op(s, QUANTIZE)]
        if any(i == BODY for _, i in edges) or not (edges or y in graph.outputs):
            continue
        changed = True
        codes = graph.fresh()
        if y in graph.outputs:
            raw = graph.fresh()
            graph.set_output(node, raw)
            copy_type(graph, raw, y)
            insert_q(graph, pair, raw, codes)
            insert_dq(graph, pair, codes, y)
            continue
        insert_q(graph, pair, y, codes)
        for reader, index in edges:
            made = graph.fresh()
            copy_type(graph, made, y)
            insert_dq(graph, pair, codes, made)
            graph.set_input(reader, index, made)
            if index == 0 and _can_propagate(reader):
                stack.append(reader)
    return changed


def _backward(graph: OrtGraph, pair: Step) -> bool:
    """Put Q -> DQ in front of what leads to `pair`, as far as it only moves values."""
    changed = False
    x = pair.inputs[0]
    while True:
        mover = graph.maker.get(x)
        if mover is None or not _can_propagate(mover) or mover.output != x:
            return changed
        if graph.only_reader(x) is None:
            return changed
        x = mover.inputs[0]
        source = graph.maker.get(x)
        if graph.is_constant(x) or (source is not None and source.op == DEQUANTIZE):
            return changed
        if source is not None and graph.only_reader(x) is not mover:
            return changed
        codes, made = graph.fresh(), graph.fresh()
        copy_type(graph, made, x)
        insert_q(graph, pair, x, codes)
        insert_dq(graph, pair, codes, made)
        graph.set_input(mover, 0, made)
        changed = True
        if source is None:
            return changed
