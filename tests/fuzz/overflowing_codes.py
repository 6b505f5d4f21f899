"""Constants that onnxruntime quantizes to the wrong end of the range.

ONNX says that QuantizeLinear saturates. Two of onnxruntime's kernels, those for 4-bit codes per
channel and for blocks, convert x / scale to int32 before they clamp: from 2**31 on that is
undefined in C++, and x86 gives the lowest code. All other kernels clamp first, as onnxq does.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from tests.fuzz.mutations import nodes_of, values_of

_NARROW = (TensorProto.INT4, TensorProto.UINT4)
_END = 2.0**31


def has_overflowing_codes(proto: ModelProto) -> bool:
    """Whether such a kernel meets a constant that is too many steps from zero."""
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in nodes_of(proto):
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            tensors |= {name: node.attribute[0].t for name in node.output}
    return any(_overflows(n, tensors) for n in nodes_of(proto) if n.op_type == "QuantizeLinear")


def _overflows(node: NodeProto, tensors: dict[str, TensorProto]) -> bool:
    values, scale, zero = ([tensors.get(name) for name in node.input] + [None] * 3)[:3]
    wanted = {a.name: a.i for a in node.attribute}
    block = wanted.get("block_size", 0)
    kind = wanted.get("output_dtype", 0) or (0 if zero is None else zero.data_type)
    if values is None or scale is None or not (block or kind in _NARROW):
        return False
    x, steps = values_of(values), values_of(scale)
    if x is None or steps is None or not x.size or not steps.ndim:
        return False
    axis = wanted.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    if not 0 <= axis < x.ndim:
        return False
    if block > 0:
        if steps.ndim != x.ndim or block > x.shape[axis]:
            return False
        steps = np.repeat(steps, block, axis)[tuple(map(slice, x.shape))]
    else:
        steps = steps.reshape(-1, *[1] * (x.ndim - 1 - axis))
    try:
        with np.errstate(all="ignore"):
            return bool(np.any(np.abs(x.astype(np.float64) / steps) >= _END))
    except ValueError:  # shapes that do not fit: onnxruntime does not run it
        return False
