"""SNPE (Qualcomm): uint8 with a zero point everywhere, one range per tensor.

The override file has MQBench's name and groups: it is an encoding file of version 0.6.1, so
it contains parameters too. Version 1.0.0 is written as well, for newer tools.
"""

from dataclasses import replace

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import aimet_0_6_1, aimet_1_0_0
from onnxq.operators.placement import TOTAL_INTEGER
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD, READ, STRIP, WHOLE_UINT8

_MODEL = "_deploy_model.onnx"

BACKEND = Backend(
    name="snpe",
    summary="SNPE: uint8 per tensor, any zero point, float biases",
    scheme=Scheme(
        weight=QSpec(("uint8", "int8")),
        activation=QSpec(("uint8", "uint16"), observer="ema-minmax"),
    ),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD, *WHOLE_UINT8),
    outputs=(
        OnnxFile(_MODEL, Pipeline(*STRIP), "clean float model for the encodings", clean=True),
        TableFile("_clip_ranges.json", aimet_0_6_1.FORMAT, beside=_MODEL),
        TableFile("_encodings_1.0.0.json", aimet_1_0_0.FORMAT, beside=_MODEL),
    ),
    proof="format",
    # SNPE 2 runs on Qualcomm AI Engine Direct (QNN), whose HTP computes MatMul in fixed point:
    # a product of two activations is on codes there as in the qnn backend.
    placement=replace(
        TOTAL_INTEGER,
        inputs=TOTAL_INTEGER.inputs | {"MatMul"},
        outputs=TOTAL_INTEGER.outputs | {"MatMul"},
    ),
    mqbench=(
        "if a quantizer ends the network, its output is renamed, in the model too; here it keeps "
        "its name",
        '"param_encodings" is empty, and weights of ConvTranspose and MatMul are listed '
        "with the activations; here parameters are listed as parameters",
        "an entry contains bit width, min and max; here also scale, offset and type",
        "a range of 255 codes is written as 7 bits; here it is widened to all codes of its type",
        "with newer numpy the lower end is computed in uint8 and wraps: min > max, and all "
        "weights become one number; not here",
    ),
)
