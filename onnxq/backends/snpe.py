"""SNPE (Qualcomm): uint8 with a zero point everywhere, one range per tensor."""

from onnxq.backend import Backend
from onnxq.placement import TOTAL_INTEGER
from onnxq.scheme import QSpec, Scheme

BACKEND = Backend(
    name="snpe",
    summary="SNPE: uint8 per tensor, any zero point, float biases",
    scheme=Scheme(
        weight=QSpec(("uint8",)),
        activation=QSpec(("uint8", "uint16"), observer="ema-minmax"),
    ),
    placement=TOTAL_INTEGER,
)
