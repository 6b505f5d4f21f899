"""The setting of papers on transformers: few bits in linear layers and products of activations."""

from dataclasses import replace

from onnxq.backends import academic
from onnxq.operators.placement import Placement, kinds

BACKEND = replace(
    academic.BACKEND,
    name="academic-nlp",
    summary="4 bits in linear layers, embeddings and products of activations; for experiments",
    placement=Placement(
        inputs=kinds("Linear MatMul"), weights=kinds("Linear Embedding"), fuse=False
    ),
)
