"""Which inputs of which operators NNIE's parameter file has a number for (its "gfpq" dictionary).

A layer has its name as key and one largest magnitude per input. Activation functions, reshapes and
global pooling run as part of other layers and have none. A convolution in groups would need one
per group, which MQBench's files do not have. Weights of Conv and Gemm are not told either: their
largest magnitude is that of the values in the model. Of an Upsample only the data counts.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.edit import producer
from onnxq.graph.constants import is_constant
from onnxq.operators.weight_axis import BIAS_INPUT

UNWRITABLE = frozenset(
    {
        *("Flatten", "Relu", "PRelu", "Sigmoid", "Reshape", "Softmax", "CaffeSoftmax", "Clip"),
        *("GlobalAveragePool", "Mul"),
    }
)
"""Operators without a key."""
UPSAMPLES = frozenset({"Upsample", "DynamicUpsample"})
_OWN_WEIGHT = frozenset({"Conv", "Gemm"})
_ONE_INPUT = UPSAMPLES | {"Resize"}


def writable_inputs(node: gs.Node) -> list[int]:
    """The inputs of `node` that the file can hold a number for, in order."""
    if node.op in UNWRITABLE or (node.op == "Conv" and int(node.attrs.get("group", 1)) != 1):
        return []
    if node.op in _ONE_INPUT:
        return [0]
    bias = BIAS_INPUT.get(node.op, len(node.inputs))
    return [
        index
        for index, tensor in enumerate(node.inputs[:bias])
        if tensor.name and _is_float(tensor) and not is_own_weight(node, index)
    ]


def is_own_weight(node: gs.Node, index: int) -> bool:
    """Whether that input is a weight that tells its largest magnitude by its values."""
    return index == 1 and node.op in _OWN_WEIGHT and is_constant(float_tensor(node.inputs[1]))


def float_tensor(tensor: gs.Tensor) -> gs.Tensor:
    """The tensor before the quantizers of `tensor`."""
    node = producer(tensor, *QUANTIZERS)
    while node is not None:
        tensor = node.inputs[0]
        node = producer(tensor, *QUANTIZERS)
    return tensor


def _is_float(tensor: gs.Tensor) -> bool:
    """Whether it may hold real numbers; one whose type is not known does."""
    return tensor.dtype is None or np.dtype(tensor.dtype).kind not in "iub"
