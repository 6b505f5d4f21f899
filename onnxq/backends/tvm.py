"""TVM through ONNX's QLinear operators: uint8 convolutions, sums and average pools.

Fully connected layers stay float: their operator has no QLinear form with a bias.
"""

from onnxq.backend import Backend
from onnxq.placement import MOVES, Placement, kinds
from onnxq.scheme import QSpec, Scheme

_INTEGER = kinds("Conv MaxPool AveragePool GlobalAveragePool Add")

BACKEND = Backend(
    name="tvm",
    summary="TVM: uint8 per tensor, any zero point, float fully connected layers",
    scheme=Scheme(weight=QSpec(("uint8",)), activation=QSpec(("uint8",))),
    placement=Placement(
        inputs=_INTEGER,
        outputs=_INTEGER - MOVES,
        weights=kinds("Conv"),
        absorbed=kinds("Relu Clip"),
    ),
)
