"""The inputs of operators that NNIE's parameter file has a number for (its "gfpq" dictionary).

The file lists layers by name, with one largest magnitude per input. Activation functions, reshapes
and global pooling run as part of other layers and have none. A grouped convolution would need one
per group, which MQBench's files do not have. Weights of Conv and Gemm have none either: their
largest magnitude is that of the values in the model. An Upsample has one for its data only.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import is_quantizer
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
    """The inputs of `node` that the file can contain a number for, in order."""
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
    """Whether that input is a weight, whose values alone determine the largest magnitude."""
    if index != 1 or node.op not in _OWN_WEIGHT or len(node.inputs) < 2:
        return False
    return is_constant(float_tensor(node.inputs[1]))


def float_tensor(tensor: gs.Tensor) -> gs.Tensor:
    """The tensor before the quantizers of `tensor`."""
    while is_quantizer(producer(tensor)):
        tensor = tensor.inputs[0].inputs[0]
    return tensor


def _is_float(tensor: gs.Tensor) -> bool:
    """Whether it may contain real numbers; a tensor of unknown type may."""
    return tensor.dtype is None or np.dtype(tensor.dtype).kind not in "iub"
