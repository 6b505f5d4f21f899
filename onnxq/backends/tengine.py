"""Tengine's uint8 mode: every tensor has a scale and a zero point, and so has what leaves.

A Relu behind anything but a convolution is an op of its own here: both sides carry a quantizer.
"""

from onnxq.backend import Backend
from onnxq.placement import LAYERS, MOVES, Placement, kinds
from onnxq.scheme import QSpec, Scheme

_INTEGER = LAYERS | kinds("Concat HardSwish Sigmoid")

BACKEND = Backend(
    name="tengine",
    summary="Tengine: uint8 per tensor, any zero point, float biases",
    scheme=Scheme(
        weight=QSpec(("uint8",)),
        activation=QSpec(("uint8",), observer="ema-minmax"),
    ),
    placement=Placement(inputs=_INTEGER, outputs=_INTEGER - MOVES, graph_outputs=True),
)
