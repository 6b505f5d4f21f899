"""QNN (Qualcomm AI Engine Direct, HTP): uint8 or uint16 activations, int8 weights per channel.

The HTP refuses weights per channel with a zero point, and int8 activations with zero point 0
behind Relu: only codes that start at 0 let it fold the Relu.
"""

from dataclasses import replace

from onnxq.backend import Backend
from onnxq.placement import LAYERS, MOVES, TOTAL_INTEGER, kinds
from onnxq.scheme import QSpec, Scheme

_INTEGER = LAYERS | kinds("MatMul Div Concat HardSwish Sigmoid Softmax Tanh Gelu")

BACKEND = Backend(
    name="qnn",
    summary="QNN HTP: uint8/uint16 activations, int8 weights per channel, float biases",
    scheme=Scheme(
        weight=QSpec(("int8", "int4"), symmetric=True, per_channel=True, lo=-127),
        activation=QSpec(("uint8", "uint16"), observer="ema-minmax"),
    ),
    placement=replace(TOTAL_INTEGER, inputs=_INTEGER, outputs=_INTEGER - MOVES, merged=frozenset()),
)
