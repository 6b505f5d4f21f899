"""STPU (SenseTime): int8 on -127..127 with zero point 0, one range per tensor, fixed scales."""

from onnxq.backend import Backend
from onnxq.placement import TOTAL_INTEGER
from onnxq.scheme import QSpec, Scheme

BACKEND = Backend(
    name="stpu",
    summary="STPU: int8 per tensor, symmetric on -127..127, float biases",
    scheme=Scheme(
        weight=QSpec(("int8",), symmetric=True, lo=-127, algorithm="fixed"),
        activation=QSpec(
            ("int8",), symmetric=True, lo=-127, algorithm="fixed", observer="ema-minmax"
        ),
    ),
    placement=TOTAL_INTEGER,
)
