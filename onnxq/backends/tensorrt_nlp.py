"""TensorRT for transformers: linear layers, products of activations and residual sums.

Scheme and files are TensorRT's. A product or sum with a plain number, the sum of a mask onto
scaled scores, and the sum of embeddings stay float.
"""

from dataclasses import replace

from onnxq.backends import tensorrt
from onnxq.operators.placement import Placement, kinds

BACKEND = replace(
    tensorrt.BACKEND,
    name="tensorrt-nlp",
    summary="TensorRT for transformers: int8 symmetric, float biases",
    placement=Placement(
        inputs=kinds("Linear MatMul Add"),
        weights=kinds("Linear Embedding"),
        merged=frozenset({("Add", "Mul"), ("Add", "Div")}),
        untouched=frozenset({("Add", "Embedding")}),
        tensors_only=True,
    ),
    mqbench=("only the model with quantizers is written; here all files of the tensorrt backend",),
)
