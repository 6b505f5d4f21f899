"""Vitis AI DPUs: int8 with power-of-two scales, for weights, activations and biases.

The DPU shifts where others multiply. Each op writes codes, activation functions run inside the op
they follow, and what enters the network is quantized too.
"""

from onnxq.backend import Backend
from onnxq.placement import Placement, kinds
from onnxq.scheme import QSpec, Scheme

_PARAMETER = QSpec(
    ("int8",), symmetric=True, power_of_two=True, algorithm="tqt", observer="minmax-floor"
)

BACKEND = Backend(
    name="vitis",
    summary="Vitis AI: int8 per tensor, power-of-two scales, quantized biases",
    scheme=Scheme(
        weight=_PARAMETER,
        activation=QSpec(
            ("int8",), symmetric=True, power_of_two=True, algorithm="tqt", observer="pot-mode"
        ),
        bias=_PARAMETER,
    ),
    placement=Placement(
        inputs=frozenset(),
        outputs=kinds(
            "Conv ConvTranspose Linear AveragePool GlobalAveragePool BatchNormalization Relu Clip",
            "PRelu Resize Add Sub Mul Concat",
        ),
        absorbed=kinds("Relu Clip"),
        graph_inputs=True,
    ),
)
