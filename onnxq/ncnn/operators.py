"""The operators that ncnn runs, each with the function that writes its layers."""

from __future__ import annotations

from onnxq.ncnn.elementwise import (
    ARITHMETIC,
    UNARY,
    Translator,
    alpha,
    arithmetic,
    bounds,
    gelu,
    hard,
    power,
    prelu,
    simple,
)
from onnxq.ncnn.kernels import conv, conv_transpose
from onnxq.ncnn.moves import (
    RESHAPES,
    concat,
    depth_to_space,
    gather,
    pad,
    shaped,
    slice_,
    split,
    transpose,
)
from onnxq.ncnn.norms import REDUCTIONS, batch_norm, instance_norm, layer_norm, reduction, softmax
from onnxq.ncnn.pools import global_pool, pool, resize
from onnxq.ncnn.products import linear

TRANSLATORS: dict[str, Translator] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Gemm": linear,
    "MatMul": linear,
    **dict.fromkeys((*ARITHMETIC, "Sum"), arithmetic),
    **{op: simple("UnaryOp", lambda net, node: {0: UNARY[node.op]}) for op in UNARY},
    "Pow": power,
    "Relu": simple("ReLU"),
    "LeakyRelu": simple("ReLU", alpha(0.01)),
    "Elu": simple("ELU", alpha(1.0)),
    "Clip": simple("Clip", bounds),
    "Sigmoid": simple("Sigmoid"),
    "Tanh": simple("TanH"),
    "Erf": simple("Erf"),
    "Gelu": simple("GELU", gelu),
    "Mish": simple("Mish"),
    "HardSwish": simple("HardSwish", hard),
    "HardSigmoid": simple("HardSigmoid", hard),
    "Softmax": simple("Softmax", softmax),
    "Concat": concat,
    **dict.fromkeys(RESHAPES, shaped),
    "Transpose": transpose,
    "Split": split,
    "Slice": slice_,
    "Gather": gather,
    "Pad": pad,
    "DepthToSpace": depth_to_space,
    "MaxPool": pool,
    "AveragePool": pool,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    **dict.fromkeys(REDUCTIONS, reduction),
    "LayerNormalization": layer_norm,
    "BatchNormalization": batch_norm,
    "InstanceNormalization": instance_norm,
    "PRelu": prelu,
    "Resize": resize,
}
"""What is written, by ONNX operator."""

ON_ROWS = frozenset(
    {
        *("Gemm", "MatMul", *ARITHMETIC, "Sum", *UNARY, "Pow", "Relu", "LeakyRelu", "Elu", "Clip"),
        *("Sigmoid", "Tanh", "Erf", "Gelu", "Mish", "HardSwish", "HardSigmoid"),
    }
)
"""Operators that compute the same whether or not one of the axes is the batch."""
