"""What onnxruntime's optimiser does to a quantized graph before it chooses integer kernels.

Its first level runs in rounds until nothing changes. In each round, in this order:

    local rules    Identity, Dropout and the like go; Conv takes up BatchNorm, Add, Mul, Pad
    double pairs   Q -> DQ -> Q -> DQ becomes one pair
    sharing        equal nodes become one; what quantizes a constant becomes a constant
    MatMul + Add   becomes Gemm
    propagation    Reshape, Transpose, MaxPool ... get a pair on the side that has none
    weights        a float weight or bias between quantized tensors is quantized
    unique DQ      every reader gets a DQ of its own

Its second level then drops a Relu or Clip that the following Q does anyway, and turns int8 pairs
with one edge into uint8. Each function here follows one of these, and says whether it changed
something.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxq.ort_fusion.clips import followed_by_its_quantizer
from onnxq.ort_fusion.graph import BODY, DEQUANTIZE, QUANTIZE, OrtGraph, Refusal, Step
from onnxq.ort_fusion.joining import (
    fold_quantized_constants,
    join_double_pairs,
    matmul_add_to_gemm,
    share_equal_nodes,
)
from onnxq.ort_fusion.local_rules import local_rules
from onnxq.ort_fusion.pairs import INT8, UINT8, copy_type, is_pair_op, new_constant
from onnxq.ort_fusion.propagation import propagate_pairs
from onnxq.ort_fusion.weights import quantize_weights

ROUNDS = 10
"""How often onnxruntime repeats a level."""


def first_level(graph: OrtGraph) -> None:
    """Rewrite `graph` as the first level of optimisation does."""
    make_dq_unique(graph)
    for _ in range(ROUNDS):
        if not any([rewrite(graph) for rewrite in FIRST_LEVEL]):
            return


def second_level(graph: OrtGraph, weights_to_u8: bool) -> None:
    """Rewrite `graph` as the second level does before it looks for integer kernels."""
    for step in graph:
        if step.op in ("Relu", "Clip") and followed_by_its_quantizer(graph, step):
            graph.bypass(step)
    signed_to_unsigned(graph, weights_to_u8)


def make_dq_unique(graph: OrtGraph) -> bool:
    """Every reader of a DQ gets a DQ of its own, if it stands in the same graph."""
    changed = False
    for step in graph:
        if not is_pair_op(step, DEQUANTIZE):
            continue
        edges = list(graph.edges(step.output))
        leaves = step.output in graph.outputs
        inner = any(index == BODY for _, index in edges)
        if not edges or (len(edges) == 1 and not leaves):
            continue
        direct = [(s, i) for s, i in edges if i != BODY]
        for reader, index in direct if leaves or inner else direct[1:]:
            made = graph.fresh()
            copy_type(graph, made, step.output)
            twin = Step(DEQUANTIZE, list(step.inputs), [made], dict(step.attrs), step.since)
            graph.add(twin)
            graph.set_input(reader, index, made)
            changed = True
    return changed


FIRST_LEVEL: tuple[Callable[[OrtGraph], bool], ...] = (
    local_rules,
    join_double_pairs,
    share_equal_nodes,
    fold_quantized_constants,
    matmul_add_to_gemm,
    propagate_pairs,
    quantize_weights,
    make_dq_unique,
)

_SAFE = 64

# -- second level ------------------------------------------------------------------------------


def signed_to_unsigned(graph: OrtGraph, weights_to_u8: bool) -> None:
    """int8 pairs whose codes have one edge become uint8, and so may stored int8 weights.

    Weights of -64..64 stay as they are: sums of their products cannot saturate. An operator with
    such a constant beside a tensor that did become uint8 has operands of two types then.
    """
    for step in graph:
        if is_pair_op(step, QUANTIZE):
            reader = graph.only_reader(step.output)
            if reader is not None and is_pair_op(reader, DEQUANTIZE):
                _pair_to_unsigned(graph, step, reader)
        elif is_pair_op(step, DEQUANTIZE) and weights_to_u8:
            codes = step.inputs[0]
            known = graph.is_constant(codes) and (
                not step.given(2) or graph.is_constant(step.given(2))
            )
            if known and graph.dtype(codes) == INT8 and _may_saturate(graph, codes):
                twin = graph.fresh()
                copy_type(graph, twin, codes)
                graph.folded.add(twin)
                graph.types[twin] = UINT8
                graph.set_input(step, 0, twin)
                if not step.given(2):
                    graph.set_input(step, 2, new_constant(graph, np.asarray(128, np.uint8)))


def _may_saturate(graph: OrtGraph, codes: str) -> bool:
    value = graph.value(codes)  # None: codes that onnxruntime makes, of a range that it fills
    return value is None or bool((np.abs(value.astype(np.int16)) > _SAFE).any())


def _pair_to_unsigned(graph: OrtGraph, quantize: Step, dequantize: Step) -> None:
    zeros = [graph.value(s.given(2)) if s.given(2) else None for s in (quantize, dequantize)]
    if any(z is None or z.size != 1 or z.dtype != INT8 for z in zeros):
        return
    first, second = zeros
    assert first is not None and second is not None
    if int(first.reshape(())) != int(second.reshape(())):
        return
    if quantize.attrs.get("output_dtype") == INT8:
        why = (
            "onnxruntime carries the int8 quantizer in front of it to its result, then turns it "
            "into uint8 there but leaves the type int8 written beside it (opset 21 and newer), "
            "and refuses its own graph"
        )
        graph.refusals.append(Refusal(_carrier(graph, quantize), why))
    zero = new_constant(graph, np.asarray(int(first.reshape(())) + 128, np.uint8))
    codes = graph.fresh()
    graph.types[codes] = UINT8
    graph.set_output(quantize, codes)
    graph.set_input(quantize, 2, zero)
    graph.set_input(dequantize, 0, codes)
    graph.set_input(dequantize, 2, zero)


def _carrier(graph: OrtGraph, quantize: Step) -> str:
    """The node of the model that a quantizer was carried across."""
    maker = graph.maker.get(quantize.inputs[0])
    return "" if maker is None else maker.key
