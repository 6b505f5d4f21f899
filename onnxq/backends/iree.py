"""IREE: QDQ, which its ONNX importer reads and its compiler turns into integer products.

Layers and products of activations read codes; everything else, and the network output, is
float. Zero points are free, weights have one scale per channel. Biases stay float.
"""

from onnxq.backend import Backend, OnnxFile
from onnxq.operators.placement import Placement
from onnxq.operators.traits import WEIGHTED
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD, READ
from passes.to_qdq import ToQdq

BACKEND = Backend(
    name="iree",
    summary="QDQ for IREE: int8 weights per channel, uint8/int8 activations, float biases",
    scheme=Scheme(
        weight=QSpec(("int8", "uint8"), per_channel=True, lo=-127, train_symmetric=True),
        activation=QSpec(("uint8", "int8"), observer="ema-minmax"),
    ),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD),
    outputs=(
        OnnxFile("_qdq.onnx", Pipeline(ToQdq(bias="float")), "QDQ model, weights as stored codes"),
    ),
    proof="consumer",
    consumers=("iree 3.13.0",),
    placement=Placement(inputs=WEIGHTED | {"MatMul"}),
)
