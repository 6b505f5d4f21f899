"""OpenVINO on CPUs: int8 weights of 7 bits, unsigned activations if nothing is negative.

Training uses weights of -64..63, since the 8-bit kernels of CPUs without VNNI add pairs of
products in 16 bits: 2 * 255 * 64 fits, 2 * 255 * 127 saturates. A convolution that feeds an Add is
summed in its accumulator, so OpenVINO does not run a quantizer there: one in the model is removed,
and the effect is reported. Concat keeps codes, so its inputs share one range; they are written as
uint8, since OpenVINO reads int8 codes as unsigned there. Weights whose scales are not along output
channels are written as floats: its MatMul would apply the scales along output channels.
Activations may have a scale per channel, as NNCF gives them before depthwise convolutions: those
run in 8 bits, other layers after them in float with the same result (measured with 2026.4.1).
float8 is imported as well, and simulated.

Variants: `fakequantize` writes OpenVINO's own operator, in the file that MQBench names so and with
its bounds: -128..127 steps and 256 levels for weights of 7 bits. `avx2` rounds weights of 8 bits to
7, which changes results; the cost is measured.
"""

from onnxq.backend import Backend, OnnxFile, Variant
from onnxq.lint.pair_saturation import PAIR_SATURATION
from onnxq.operators.placement import MOVES, Placement, kinds
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.dequantize_off_axis import DequantizeOffAxis
from passes.drop_summed_quantizers import DropSummedQuantizers
from passes.fill_weight_range import FillWeightRange
from passes.narrow_weights import NarrowWeights
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ
from passes.to_openvino import ToOpenvino
from passes.to_qdq import ToQdq
from passes.unsign_concat import UnsignConcat

_PIPELINE = Pipeline(*READ, *CLEAN, *FOLD_SYMMETRIC, DequantizeOffAxis(), DropSummedQuantizers())

BACKEND = Backend(
    name="openvino",
    summary="OpenVINO: int8 weights per channel (7 bits in training), int8/uint8 activations",
    scheme=Scheme(
        weight=QSpec(
            ("int8", "float8e4m3fn", "float8e5m2"),
            symmetric=True,
            per_channel=True,
            lo=-64,
            hi=63,
        ),
        activation=QSpec(
            ("int8", "uint8", "float8e4m3fn", "float8e5m2"),
            per_channel=True,
            train_symmetric=True,
            observer="ema-minmax",
        ),
    ),
    pipeline=_PIPELINE,
    outputs=(
        OnnxFile(
            "_qdq.onnx",
            Pipeline(UnsignConcat(), ToQdq(bias="float")),
            "QDQ model, weights as stored codes",
        ),
    ),
    proof="consumer",
    consumers=("openvino 2026.4.1",),
    placement=Placement(
        inputs=kinds(
            "Conv ConvTranspose Linear MatMul AveragePool GlobalAveragePool MaxPool Resize Add",
            "ReduceMean ReduceSum",
        ),
        moves=MOVES | {"Concat"},
        unified=kinds("Concat"),
        accumulated=kinds("Conv"),
        graph_inputs=True,
        unsigned=True,
    ),
    variants={
        "fakequantize": Variant(
            "OpenVINO's FakeQuantize instead of QDQ",
            outputs=(
                OnnxFile(
                    "_deploy_model.onnx",
                    Pipeline(FillWeightRange(), ToOpenvino()),
                    "float model with FakeQuantize",
                ),
            ),
        ),
        "avx2": Variant(
            "weights rounded to 7 bits, which cannot saturate without VNNI; costs accuracy",
            pipeline=Pipeline(*_PIPELINE, NarrowWeights()),
        ),
    },
    lint=(PAIR_SATURATION,),
    mqbench=(
        "`FakeQuantize` without the import of its domain; here it is imported (`--variant "
        "fakequantize`)",
    ),
)
