"""PPL on DSPs: 8-bit weights, 16-bit activations, both unsigned with a zero point."""

from onnxq.backend import Backend
from onnxq.placement import TOTAL_INTEGER
from onnxq.scheme import QSpec, Scheme

BACKEND = Backend(
    name="ppl",
    summary="PPL W8A16: uint8 weights, uint16 activations, per tensor, float biases",
    scheme=Scheme(
        weight=QSpec(("uint8",)),
        activation=QSpec(("uint16", "uint8"), observer="ema-minmax"),
    ),
    placement=TOTAL_INTEGER,
)
