"""QNN (Qualcomm AI Engine Direct, HTP): uint8 or uint16 activations, int8 weights per channel.

There are two ways: QDQ for onnxruntime's QNN provider, and a clean model with encodings of all
three versions for Qualcomm's converters.

The HTP rejects weights per channel with a zero point, and int8 activations with zero point 0 after
Relu: it folds a Relu only into codes that start at 0. So activations are uint8, with zero point 0
after Relu, and weights are symmetric; with one scale it takes uint8 weights with any zero point as
well, which onnxruntime's and PPQ's settings for QNN write. The QDQ model has no such Relu:
onnxruntime turns a MatMul on three axes into a Gemm and a Reshape, and a Relu after those two is
not folded. Encodings have all codes of 8 or 16 bits: a Clip (ReLU6) that cuts some off stays, and
is quantized on both sides.
"""

from dataclasses import replace

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import aimet_0_6_1, aimet_1_0_0, aimet_2_0_0
from onnxq.lint.half_biases import HALF_BIASES
from onnxq.lint.qnn_node_units import QNN_NODE_UNITS
from onnxq.operators.placement import LAYERS, MOVES, TOTAL_INTEGER, kinds
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.absorb_clip import AbsorbClip
from passes.fill_weight_range import FillWeightRange
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ, STRIP
from passes.propagate_ranges import PropagateRanges
from passes.retype_activations import RetypeActivations
from passes.to_qdq import ToQdq
from passes.unify_scales import UnifyScales
from passes.widen_range import WidenRange

_INTEGER = LAYERS | kinds("MatMul Div Concat HardSwish Sigmoid Softmax Tanh Gelu")
_MODEL = "_deploy_model.onnx"

BACKEND = Backend(
    name="qnn",
    summary="QNN HTP: uint8/uint16 activations, int8 weights per channel, float biases",
    scheme=Scheme(
        weight=QSpec(
            ("int8", "int4"), symmetric=True, asymmetric=("uint8",), per_channel=True, lo=-127
        ),
        activation=QSpec(("uint8", "uint16"), observer="ema-minmax"),
    ),
    pipeline=Pipeline(
        *READ,
        *CLEAN,
        *FOLD_SYMMETRIC,
        PropagateRanges(),
        RetypeActivations(to="uint8", whole=True),
        AbsorbClip(whole=True),
        WidenRange(),
        FillWeightRange(),
        UnifyScales(),
    ),
    outputs=(
        OnnxFile(
            "_qdq.onnx",
            Pipeline(AbsorbClip(relu=True, whole=True), ToQdq(bias="float")),
            "QDQ model for onnxruntime-qnn",
        ),
        OnnxFile(_MODEL, Pipeline(*STRIP), "clean float model for the encodings", clean=True),
        TableFile("_encodings_0.6.1.json", aimet_0_6_1.FORMAT, beside=_MODEL),
        TableFile("_encodings_1.0.0.json", aimet_1_0_0.FORMAT, beside=_MODEL),
        TableFile("_encodings_2.0.0.json", aimet_2_0_0.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=replace(TOTAL_INTEGER, inputs=_INTEGER, outputs=_INTEGER - MOVES, merged=frozenset()),
    lint=(QNN_NODE_UNITS, HALF_BIASES),
    float16=False,
)
