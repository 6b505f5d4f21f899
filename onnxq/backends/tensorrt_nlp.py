"""TensorRT for transformers: linear layers, products of activations and residual sums.

The scheme is TensorRT's. A product or sum with a plain number, the sum of a mask onto scaled
scores, and the sum of embeddings stay float.
"""

from onnxq.backend import Backend
from onnxq.backends import tensorrt
from onnxq.placement import Placement, kinds

BACKEND = Backend(
    name="tensorrt-nlp",
    summary="TensorRT for transformers: int8 symmetric, float biases",
    scheme=tensorrt.BACKEND.scheme,
    placement=Placement(
        inputs=kinds("Linear MatMul Add"),
        weights=kinds("Linear Embedding"),
        merged=frozenset({("Add", "Mul"), ("Add", "Div")}),
        untouched=frozenset({("Add", "Embedding")}),
        tensors_only=True,
    ),
)
