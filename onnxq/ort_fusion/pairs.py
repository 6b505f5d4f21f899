"""Q and DQ as onnxruntime compares them, and the types it gives their codes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, Operation, OrtGraph

INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)


def code_type(graph: OrtGraph, pair: Operation) -> np.dtype[np.generic] | None:
    """The type of the codes of a Q or DQ when onnxruntime looks for integer operators."""
    found = written_type(graph, pair)
    return UINT8 if found == INT8 and becomes_uint8(graph, pair) else found


def written_type(graph: OrtGraph, pair: Operation) -> np.dtype[np.generic] | None:
    """The type of the codes of a Q or DQ in the graph.

    onnxruntime writes types only if it knows the shape, so the zero point comes first.
    """
    found = graph.dtype(pair.given(2)) or graph.dtype(_codes(pair))
    if found is None and pair.op == QUANTIZE:
        kind = pair.attrs.get("output_dtype", TensorProto.UINT8)
        return helper.tensor_dtype_to_np_dtype(kind or TensorProto.UINT8)
    quantize = graph.made_by(_codes(pair), QUANTIZE)
    return found if found is not None or quantize is None else written_type(graph, quantize)


def becomes_uint8(graph: OrtGraph, pair: Operation) -> bool:
    """Whether onnxruntime turns the pair of this Q or DQ from int8 into uint8.

    It does so if a DQ is the only consumer of the Q, and both have the same scalar zero point.
    """
    quantize = graph.made_by(_codes(pair), QUANTIZE)
    dequantize = graph.only_consumer(_codes(pair))
    if quantize is None or dequantize is None or dequantize.op != DEQUANTIZE:
        return False
    first, second = (graph.value(each.given(2)) for each in (quantize, dequantize))
    if first is None or second is None or {first.size, second.size} != {1}:
        return False
    return first.dtype == second.dtype == INT8 and first.item() == second.item()


def _codes(pair: Operation) -> str:
    return pair.output if pair.op == QUANTIZE else pair.inputs[0]


def same_parameters(graph: OrtGraph, a: Operation, b: Operation) -> bool:
    """Whether two of Q and DQ have equal scalar parameters; zero points must be given."""
    for index in (1, 2):
        if not all(graph.is_scalar(pair.given(index)) for pair in (a, b)):
            return False
        first, second = (graph.value(pair.given(index)) for pair in (a, b))
        if first is None or second is None or first.dtype != second.dtype or first != second:
            return False
    return True
