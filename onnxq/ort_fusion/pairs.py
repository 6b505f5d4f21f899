"""Q and DQ as onnxruntime compares them, and the types it gives their codes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, OrtGraph, Step

INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)


def code_type(graph: OrtGraph, step: Step) -> np.dtype[np.generic] | None:
    """The type of the codes of a Q or DQ when onnxruntime looks for integer operators."""
    found = written_type(graph, step)
    return UINT8 if found == INT8 and becomes_uint8(graph, step) else found


def written_type(graph: OrtGraph, step: Step) -> np.dtype[np.generic] | None:
    """The type of the codes of a Q or DQ as the graph has it.

    onnxruntime writes types down only where it knows the shape, so the zero point is asked first.
    """
    found = graph.dtype(step.given(2)) or graph.dtype(_codes(step))
    if found is None and step.op == QUANTIZE:
        kind = step.attrs.get("output_dtype", TensorProto.UINT8)
        return helper.tensor_dtype_to_np_dtype(kind or TensorProto.UINT8)
    maker = graph.made_by(_codes(step), QUANTIZE)
    return found if found is not None or maker is None else written_type(graph, maker)


def becomes_uint8(graph: OrtGraph, step: Step) -> bool:
    """Whether onnxruntime turns the pair of this Q or DQ from int8 into uint8.

    It does so where the Q is read by one DQ alone, and both have the same scalar zero point.
    """
    quantize = graph.maker.get(_codes(step))
    reader = graph.only_reader(_codes(step))
    if quantize is None or reader is None or (quantize.op, reader.op) != (QUANTIZE, DEQUANTIZE):
        return False
    zeros = [graph.value(s.given(2)) for s in (quantize, reader)]
    if any(z is None or z.size != 1 or z.dtype != INT8 for z in zeros):
        return False
    first, second = (int(z.reshape(())) for z in zeros if z is not None)
    return first == second


def _codes(step: Step) -> str:
    return step.output if step.op == QUANTIZE else step.inputs[0]


def same_parameters(graph: OrtGraph, a: Step, b: Step) -> bool:
    """Whether two of Q and DQ have equal scalar parameters; zero points must be given."""
    for index in (1, 2):
        x, y = a.given(index), b.given(index)
        if not all(name and graph.is_scalar(name) for name in (x, y)):
            return False
        first, second = graph.value(x), graph.value(y)
        if first is None or second is None or first.dtype != second.dtype:
            return False
        if first.reshape(-1)[0] != second.reshape(-1)[0]:
            return False
    return True
