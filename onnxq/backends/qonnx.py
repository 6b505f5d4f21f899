"""QONNX: the Quant operator of FINN and hls4ml, for any number of bits.

Ranges are the whole or the narrow one of a number of bits, with a scale per tensor or channel.
Biases are float in training; a model with quantized biases keeps them. Quant adds the zero point
before it rounds, so training keeps zero points at 0, for which that makes no difference.
"""

from onnxq.backend import Backend, OnnxFile
from onnxq.operators.placement import Placement
from onnxq.operators.traits import WEIGHTED
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD, READ
from passes.to_qonnx import ToQonnx

_SIGNED, _UNSIGNED = ("int8", "int4", "int2", "int16"), ("uint8", "uint4", "uint2", "uint16")

BACKEND = Backend(
    name="qonnx",
    summary="QONNX for FINN and hls4ml: Quant nodes of 2 to 16 bits",
    scheme=Scheme(
        weight=QSpec(
            _SIGNED + _UNSIGNED, per_channel=True, lo=-127, train_symmetric=True, observer="lsq"
        ),
        activation=QSpec(
            _SIGNED + _UNSIGNED, per_channel=True, train_symmetric=True, observer="lsq"
        ),
    ),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD),
    outputs=(OnnxFile("_qonnx.onnx", Pipeline(ToQonnx()), "float model with Quant nodes"),),
    proof="format",
    float16=False,
    placement=Placement(inputs=WEIGHTED | {"MatMul", "Add"}, unsigned=True),
)
