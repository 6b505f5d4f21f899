"""Q and DQ as onnxruntime compares them, and how a pair is put into a graph."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, OrtGraph, Step
from onnxq.quant.qparams import Array

INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)

PAIR_VERSIONS = {10, 13, 19, 21, 23, 24, 25}
"""Versions of Q/DQ that are recognised where a version is asked for."""


def is_pair_op(step: Step | None, op: str) -> bool:
    """Whether `step` is a Q (or DQ) of a version that is recognised."""
    return step is not None and step.op == op and step.since in PAIR_VERSIONS


def has_scalar_parameters(graph: OrtGraph, step: Step) -> bool:
    """Whether scale and zero point (if any) of a Q or DQ are constant scalars."""
    names = [step.given(1), *([step.given(2)] if step.given(2) else [])]
    return all(graph.is_scalar(n) and graph.is_constant(n) for n in names)


def code_type(graph: OrtGraph, step: Step) -> np.dtype[np.generic] | None:
    """The type of the codes that a Q makes or a DQ reads."""
    return graph.dtype(step.output if step.op == QUANTIZE else step.inputs[0])


def same_parameters(graph: OrtGraph, a: Step, b: Step) -> bool:
    """Whether two of Q and DQ have equal scalar parameters; zero points must be given."""
    if not (a.given(2) and b.given(2)):
        return False
    if not (has_scalar_parameters(graph, a) and has_scalar_parameters(graph, b)):
        return False
    return all(equal_constants(graph, a.given(i), b.given(i)) for i in (1, 2))


def equal_constants(graph: OrtGraph, a: str, b: str) -> bool:
    """Whether two constants of one element are the same."""
    if a == b:
        return True
    x, y = graph.value(a), graph.value(b)
    if x is None or y is None or graph.dtype(a) != graph.dtype(b):
        return False
    return bool(x.reshape(-1)[0] == y.reshape(-1)[0])


def new_constant(graph: OrtGraph, value: Array) -> str:
    """A new constant of `graph`."""
    name = graph.fresh()
    graph.tensors[name] = gs.Constant(name, np.asarray(value))
    return name


def insert_q(graph: OrtGraph, like: Step, x: str, codes: str) -> None:
    """Let a Q with the parameters of `like` make `codes` from `x`."""
    kind = code_type(graph, like)
    if kind is not None:
        graph.types[codes] = kind
    # From opset 21 on onnxruntime also writes the type down, but only when it goes forward.
    typed = like.op == DEQUANTIZE and like.since >= 21
    attrs = {"output_dtype": kind} if typed else {}
    graph.add(Step(QUANTIZE, [x, *like.inputs[1:]], [codes], attrs, like.since))


def insert_dq(graph: OrtGraph, like: Step, codes: str, y: str) -> None:
    """Let a DQ with the parameters of `like` make `y` from `codes`."""
    graph.add(Step(DEQUANTIZE, [codes, *like.inputs[1:]], [y], since=like.since))


def copy_type(graph: OrtGraph, name: str, like: str) -> None:
    """Give `name` the type and shape of `like`."""
    if like in graph.tensors:
        graph.tensors[name] = graph.tensors[like]
