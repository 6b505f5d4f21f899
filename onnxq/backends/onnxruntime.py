"""onnxruntime's CPU kernels: QDQ that fuses into QLinearConv and friends.

uint8 activations, since int8 ones fuse only if a tensor has a single consumer; zero point at the
lowest code after Relu, since only then Conv + Relu fuses; ranges carried across Flatten and the
like, since pools fuse only with a quantizer directly after them. Biases stay float: onnxruntime
rounds them to steps of sx * sw by itself, the same way whether the file did so or not, and the
file stays exact. Opset 13 at least: below 11 onnxruntime fails to round float biases. Channels with
weights so small that the code of their bias exceeds int32, which its kernels cut, get larger steps.

Activations with one scale per channel have no integer kernels, but are fused into them. To prevent
this, the tensor is divided by such scales before the pair and multiplied by them after it. Float
layers between quantizers are guarded: onnxruntime would round their weights per tensor by itself.

Convolutions read and write codes. Matrix products read them, and write floats as fast, so their
results are quantized only for a reader that wants codes; Gemm does so only without its float bias,
which is then added by an operator of its own. Other operators with an integer kernel join where
everything around them is in codes anyway. Layers so small that integers gain nothing stay float
when a float model is quantized. An operand that is a plain number keeps
its operator in float, so nothing is quantized around it.

Variants: `int32-bias` does that rounding in the file, so that even an unoptimised session computes
what the kernels do, and its cost is measured. Layers of more than 8 bits run in float, but
onnxruntime rounds their biases too, and loses a code that does not fit int32: in the variant such
a bias has a coarser step. `qoperator` writes the integer operators that onnxruntime would make
itself, for runtimes that do not: biases are int32 codes there too, and all results are codes.
`avx2` stores weights as uint8 if int8 ones could saturate on CPUs without VNNI, which changes no
value. `weight-only` leaves activations float and stores the matrices of products in 4 bits, one
scale for 32 inputs, as MatMulNBits: for large language models, whose speed is that of reading
their weights.
"""

from dataclasses import replace

from onnxq.backend import Backend, OnnxFile, Variant
from onnxq.lint.gemm_bias_scale import GEMM_BIAS_SCALE
from onnxq.lint.half_biases import HALF_BIASES
from onnxq.lint.onnxruntime_kernels import ONNXRUNTIME_KERNELS
from onnxq.lint.pair_saturation import PAIR_SATURATION
from onnxq.operators.placement import MOVES, Placement, kinds
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.absorb_clip import AbsorbClip
from passes.coarsen_dead_channels import CoarsenDeadChannels
from passes.dequantize_off_axis import DequantizeOffAxis
from passes.factor_channel_scales import FactorChannelScales
from passes.guard_float_layers import GuardFloatLayers
from passes.phases import CLEAN, FOLD, READ
from passes.propagate_ranges import PropagateRanges
from passes.quantize_bias import QuantizeBias
from passes.retype_activations import RetypeActivations
from passes.round_bias import RoundBias
from passes.split_gemm import SplitGemm
from passes.to_matmul_nbits import ToMatmulNbits
from passes.to_qdq import ToQdq
from passes.to_qoperator import ToQoperator
from passes.unsign_weights import UnsignWeights

_INTEGER = kinds(
    "Conv ConvTranspose Linear MatMul Add Mul Concat AveragePool GlobalAveragePool Resize Sigmoid",
    "LeakyRelu",
)
"""MaxPool only moves values: it runs on codes wherever it gets them, and asks for none."""
_JOINING = kinds("Add Mul Concat AveragePool GlobalAveragePool Resize Sigmoid LeakyRelu")
_ALL_INTEGER = Placement(
    inputs=_INTEGER, outputs=_INTEGER - MOVES, absorbed=kinds("Relu Clip"), tensors_only=True
)
_OTHERS = ("int4", "uint4", "int2", "uint2", "int16", "uint16")

_PIPELINE = Pipeline(
    *(*READ, *CLEAN, *FOLD),
    *(PropagateRanges(), RetypeActivations(to="uint8"), AbsorbClip()),
    *(DequantizeOffAxis(), FactorChannelScales(), GuardFloatLayers(), CoarsenDeadChannels()),
)
_ACTIVATION = QSpec(("uint8", "int8", *_OTHERS), per_channel=True, observer="ema-minmax")
_FLOAT_BIASES = Pipeline(*_PIPELINE, SplitGemm())
_BIASES_IN_CODES = Pipeline(*_PIPELINE, QuantizeBias(coarser=True), RoundBias())

BACKEND = Backend(
    name="onnxruntime",
    summary="QDQ for onnxruntime: uint8 activations, int8 weights per channel, float biases",
    scheme=Scheme(
        weight=QSpec(
            ("int8", "uint8", *_OTHERS),
            per_channel=True,
            blocks=True,
            lo=-127,
            train_symmetric=True,
        ),
        activation=_ACTIVATION,
    ),
    pipeline=_FLOAT_BIASES,
    outputs=(
        OnnxFile(
            "_qdq.onnx",
            Pipeline(ToQdq(bias="float", pack="blocked", opset=13)),
            "QDQ model, weights as stored codes",
        ),
    ),
    proof="consumer",
    consumers=("onnxruntime 1.31.1", "onnxruntime-web 1.30.0"),
    sessions=("reference", "deployed"),
    placement=replace(
        _ALL_INTEGER,
        outputs=_ALL_INTEGER.outputs - {"Linear", "MatMul"},
        joining=_JOINING,
        float_if_cheap=True,
    ),
    variants={
        "int32-bias": Variant(
            "biases as int32 codes that its kernels add; the cost is measured",
            pipeline=_BIASES_IN_CODES,
            outputs=(
                OnnxFile(
                    "_qdq.onnx",
                    Pipeline(ToQdq(bias="int32", pack="blocked", opset=13)),
                    "QDQ model, weights and biases as stored codes",
                ),
            ),
        ),
        "qoperator": Variant(
            "integer operators instead of QDQ",
            pipeline=_BIASES_IN_CODES,
            placement=_ALL_INTEGER,
            outputs=(
                OnnxFile(
                    "_qoperator.onnx",
                    Pipeline(ToQoperator()),
                    "integer operators where possible, otherwise QDQ",
                ),
            ),
        ),
        "avx2": Variant(
            "uint8 weights if int8 ones could saturate without VNNI",
            pipeline=Pipeline(*_FLOAT_BIASES, UnsignWeights()),
        ),
        "weight-only": Variant(
            "4-bit weights of matrix products in blocks of 32, float activations",
            outputs=(
                OnnxFile(
                    "_nbits.onnx",
                    Pipeline(ToMatmulNbits(), ToQdq(bias="float", pack="blocked", opset=13)),
                    "MatMulNBits where possible, otherwise QDQ",
                ),
            ),
            scheme=Scheme(
                weight=QSpec(
                    ("int4", "uint4", "int8", "uint8", "int2", "uint2", "int16", "uint16"),
                    per_channel=True,
                    blocks=True,
                    block=32,
                    train_symmetric=True,
                ),
                activation=_ACTIVATION,
            ),
            placement=Placement(inputs=frozenset(), weights=kinds("Linear")),
        ),
    },
    lint=(ONNXRUNTIME_KERNELS, GEMM_BIAS_SCALE, HALF_BIASES, PAIR_SATURATION),
)
