"""TVM: plain QDQ, which its ONNX importer reads.

The placement is MQBench's: uint8 convolutions, sums and average pools, each writing codes; fully
connected layers stay float in training, but are deployed quantized if the model quantizes them.
Biases are float. One scale per tensor is a scalar: TVM does not accept it as a vector.
"""

from onnxq.backend import Backend, OnnxFile
from onnxq.operators.placement import MOVES, Placement, kinds
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD, READ
from passes.to_qdq import ToQdq

_INTEGER = kinds("Conv MaxPool AveragePool GlobalAveragePool Add")

BACKEND = Backend(
    name="tvm",
    summary="QDQ for TVM: 8 bits, any zero point, float fully connected layers in training",
    scheme=Scheme(
        weight=QSpec(("uint8", "int8"), per_channel=True),
        activation=QSpec(("uint8", "int8")),
    ),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD),
    outputs=(
        OnnxFile("_qdq.onnx", Pipeline(ToQdq(bias="float")), "QDQ model, weights as stored codes"),
    ),
    proof="consumer",
    consumers=("apache-tvm 0.27.0.post1",),
    placement=Placement(
        inputs=_INTEGER,
        outputs=_INTEGER - MOVES,
        weights=kinds("Conv"),
        absorbed=kinds("Relu Clip"),
    ),
    mqbench=(
        "QLinearConv and QLinearAdd for an importer that TVM no longer has; here QDQ",
        "biases are truncated to int32 instead of rounded; here they are float",
        "weights are not clamped before they become uint8, and may wrap; here they are "
        "clamped as in training",
        "any Clip is treated as 0 to 6; here its own bounds apply",
    ),
)
