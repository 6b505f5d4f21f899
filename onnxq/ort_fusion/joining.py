"""Nodes that become one: double pairs, equal nodes, Q of constants, MatMul and its bias."""

from __future__ import annotations

import numpy as np

from onnxq.ort_fusion.graph import BODY, DEQUANTIZE, QUANTIZE, OrtGraph, Step
from onnxq.ort_fusion.pairs import (
    INT8,
    UINT8,
    code_type,
    equal_constants,
    new_constant,
    same_parameters,
)


def join_double_pairs(graph: OrtGraph) -> bool:
    """Q -> DQ -> Q -> DQ, each read by the next alone: one pair, with the range of both."""
    changed = False
    for inner in graph:
        first = graph.made_by(inner.inputs[0], QUANTIZE) if inner.op == DEQUANTIZE else None
        again = graph.only_reader(inner.output) if first is not None else None
        if first is None or again is None or again.op != QUANTIZE:
            continue
        last = graph.only_reader(again.output)
        if last is None or last.op != DEQUANTIZE or graph.only_reader(first.output) is not inner:
            continue
        if not (same_parameters(graph, first, inner) and same_parameters(graph, again, last)):
            continue
        kind = code_type(graph, first)
        if kind not in (INT8, UINT8) or kind != code_type(graph, again):
            continue
        graph.set_input(last, 0, first.output)
        if not (equal_constants(graph, inner.given(1), again.given(1))) or not (
            equal_constants(graph, inner.given(2), again.given(2))
        ):
            _merge_ranges(graph, first, again, last)
        graph.remove(again)
        graph.remove(inner)
        changed = True
    return changed


def _merge_ranges(graph: OrtGraph, first: Step, again: Step, last: Step) -> None:
    """Give the pair that stays the part of both ranges that they share."""
    kind = code_type(graph, first)
    assert kind is not None
    info = np.iinfo(kind.name)
    lows, highs = [], []
    for step in (first, again):
        scale, zero = graph.value(step.given(1)), graph.value(step.given(2))
        assert scale is not None and zero is not None
        lows.append((info.min - int(zero.reshape(()))) * np.float32(scale.reshape(())))
        highs.append((info.max - int(zero.reshape(()))) * np.float32(scale.reshape(())))
    low, high = max(lows), min(highs)
    scale = np.asarray((high - low) / np.float32(info.max - info.min), np.float32)
    zero = np.asarray(np.clip(np.rint(info.min - low / scale), info.min, info.max), kind)
    for step in (first, last):
        for index, value in ((1, scale), (2, zero)):
            graph.set_input(step, index, new_constant(graph, value))


def share_equal_nodes(graph: OrtGraph) -> bool:
    """Nodes with equal operator, attributes and inputs become one, as do equal float scalars."""
    known: dict[object, Step] = {}
    scalars: dict[object, str] = {}
    changed = False

    def name_of(name: str) -> object:
        kind = graph.dtype(name)
        if kind is not None and kind.kind in "fi" and kind.itemsize >= 2 and kind != np.int16:
            value = graph.value(name) if graph.is_scalar(name) else None
            if value is not None:
                return scalars.setdefault((kind, value.shape, value.tobytes()), name)
        return name

    for step in graph:
        if step.body_reads or step.op not in _SHARED or step.output in graph.outputs:
            continue
        key = (step.op, repr(sorted(step.attrs.items(), key=str)), *map(name_of, step.inputs))
        twin = known.setdefault(key, step)
        if twin is step or len(step.outputs) != 1:
            continue
        if any(index == BODY for _, index in graph.edges(step.output)):
            continue
        for reader, index in list(graph.edges(step.output)):
            graph.set_input(reader, index, twin.output)
        twin.also += [step.key, *step.also]
        graph.remove(step)
        changed = True
    return changed


_SHARED = {
    *(QUANTIZE, "Conv", "Gemm", "MatMul", "Relu", "Clip", "Add", "Mul", "MaxPool"),
    *("Concat", "Flatten", "Reshape", "Transpose", "AveragePool", "GlobalAveragePool"),
    *("BatchNormalization", "Sub", "Div", "Sigmoid"),
}


def fold_quantized_constants(graph: OrtGraph) -> bool:
    """Q of a constant: its codes are a constant."""
    changed = False
    for step in graph:
        if step.op not in (QUANTIZE, "Clip") or step.output in graph.outputs:
            continue
        if all(graph.is_constant(name) for name in step.inputs if name):
            kind, y = code_type(graph, step) or UINT8, step.output
            if step.op == "Clip":
                kind = graph.dtype(step.output) or kind
            graph.remove(step)
            graph.folded.add(y)
            graph.types[y] = kind
            changed = True
    return changed


def matmul_add_to_gemm(graph: OrtGraph) -> bool:
    """MatMul with a matrix, and an Add of one value per column: Gemm."""
    changed = False
    for step in graph:
        add = graph.only_reader(step.output) if step.op == "MatMul" else None
        if add is None or add.op != "Add" or not _is_bias_add(graph, step, add):
            continue
        bias = add.inputs[1 if add.inputs[0] == step.output else 0]
        a, y = step.inputs[0], add.output
        rank = len(graph.shape(a) or ())
        gemm = Step("Gemm", [a, step.inputs[1], bias], [y], {}, 13, step.key, step.also)
        gemm.also = [*step.also, add.key, *add.also]
        graph.remove(step)
        graph.remove(add)
        if rank != 2:
            flat, product = graph.fresh(), graph.fresh()
            graph.add(Step("Reshape", [a], [flat], since=14))
            gemm.inputs[0], gemm.outputs = flat, [product]
            graph.add(gemm)
            graph.add(Step("Reshape", [product], [y], since=14))
        else:
            graph.add(gemm)
        changed = True
    return changed


def _is_bias_add(graph: OrtGraph, matmul: Step, add: Step) -> bool:
    a, b = graph.shape(matmul.inputs[0]), graph.shape(matmul.inputs[1])
    bias = graph.shape(add.inputs[1 if add.inputs[0] == matmul.output else 0])
    if a is None or b is None or bias is None or len(b) != 2:
        return False
    if graph.dtype(matmul.inputs[0]) not in (np.dtype(np.float32), np.dtype(np.float16)):
        return False
    if len(a) != 2 and not all(isinstance(d, int) for d in (*a, *b)):
        return False
    if len(bias) == 1:
        return bool(bias[0] == b[1])
    if len(a) != 2 or len(bias) != 2:
        return False
    wide = bias[1] == b[1]
    return bool((bias[0] == 1 and wide) or (bias[0] == a[0] and (bias[1] == 1 or wide)))
