"""TensorRT: explicit QDQ (the only way from TensorRT 11 on), and ranges for TensorRT up to 10.

int8 with zero point 0 everywhere, weights per channel, biases float; or float8 E4M3 as ModelOpt
writes it, which only the QDQ model can contain. TensorRT clamps at -128, so
quantizers trained on -127..127 are widened by that one code, and onnxq trains activations on
-128..127. Scales of weights must run along output channels: other weights are written as floats.

Ranges are for all consumers of a tensor: if only some read it quantized, or each on its own grid,
only the QDQ model is written.

An Add reads one convolution directly from its accumulator: the other branch has a quantizer, that
one does not.
"""

from dataclasses import replace

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import tensorrt_cache, tensorrt_ranges
from onnxq.lint.half_biases import HALF_BIASES
from onnxq.operators.placement import INPUTS_ONLY
from onnxq.operators.traits import WEIGHTED
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.dequantize_off_axis import DequantizeOffAxis
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ, STRIP
from passes.retype_activations import RetypeActivations
from passes.to_qdq import ToQdq
from passes.unify_scales import UnifyScales
from passes.widen_range import WidenRange

_FLOAT = "_deploy_model.onnx"

BACKEND = Backend(
    name="tensorrt",
    summary="QDQ for TensorRT: int8 symmetric, float biases; legacy ranges with a clean model",
    scheme=Scheme(
        weight=QSpec(
            ("int8", "int4", "float8e4m3fn"),
            symmetric=True,
            per_channel=True,
            blocks=True,
            lo=-127,
        ),
        activation=QSpec(
            ("int8", "float8e4m3fn"), symmetric=True, full_range=True, observer="ema-minmax"
        ),
    ),
    pipeline=Pipeline(
        *(*READ, *CLEAN, *FOLD_SYMMETRIC),
        *(DequantizeOffAxis(transposed=True), RetypeActivations(to="int8"), WidenRange()),
    ),
    outputs=(
        OnnxFile("_qdq.onnx", Pipeline(ToQdq(bias="float")), "QDQ model for explicit quantization"),
        OnnxFile(
            _FLOAT,
            Pipeline(UnifyScales(), *STRIP),
            "clean float model for the ranges below",
        ),
        TableFile("_clip_ranges.json", tensorrt_ranges.FORMAT, beside=_FLOAT, legacy=True),
        TableFile("_calibration.cache", tensorrt_cache.FORMAT, beside=_FLOAT, legacy=True),
    ),
    proof="format",
    # TensorRT runs a MatMul in int8 if both inputs have Q/DQ, and without them in float together
    # with the softmax, as one attention kernel. Which is better depends on the network, so there
    # are two backends.
    placement=replace(
        INPUTS_ONLY,
        accumulated=WEIGHTED,
        float_products="attention can then run as one float kernel; the backend 'tensorrt-nlp' has "
        "them on codes",
    ),
    lint=(HALF_BIASES,),
    mqbench=(
        "the range after a Flatten is copied before it; here only quantized tensors have one",
        "ranges of quantizers trained on -128..127 are 128 steps, 0.8 % more than TensorRT "
        "divides by; here 127 steps always",
        "the QDQ model of newer versions has scales of one element, which onnxruntime rejects "
        "around an Add, and it does not specify -127..127; here scales are scalars, and codes go "
        "down to -128 as in TensorRT",
    ),
)
