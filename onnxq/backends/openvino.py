"""OpenVINO on CPUs: int8 weights of 7 bits, unsigned activations where nothing is negative.

Weights use -64..63, since the 8-bit kernels of CPUs without VNNI add pairs of products in 16 bits:
2 * 255 * 64 fits, 2 * 255 * 127 saturates. A convolution that feeds an Add is summed in its
accumulator, so OpenVINO does not run a quantizer there. Concat keeps codes, so its inputs share
one range.
"""

from onnxq.backend import Backend
from onnxq.lint_rules.pair_saturation import PAIR_SATURATION
from onnxq.placement import MOVES, Placement, kinds
from onnxq.scheme import QSpec, Scheme

BACKEND = Backend(
    name="openvino",
    summary="OpenVINO: 7-bit int8 weights per channel, int8/uint8 symmetric activations",
    scheme=Scheme(
        weight=QSpec(("int8",), symmetric=True, per_channel=True, lo=-64, hi=63),
        activation=QSpec(("int8", "uint8"), symmetric=True, observer="ema-minmax"),
    ),
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
    lint=(PAIR_SATURATION,),
)
