"""NNIE (HiSilicon): a logarithmic grid of 16 codes per octave, given by the largest magnitude."""

from onnxq.backend import Backend
from onnxq.placement import INPUTS_ONLY
from onnxq.scheme import QSpec, Scheme

BACKEND = Backend(
    name="nnie",
    summary="NNIE: 8-bit logarithmic grid per tensor, float biases",
    scheme=Scheme(
        weight=QSpec(("int8",), symmetric=True, algorithm="nnie", algorithm_is_grid=True),
        activation=QSpec(
            ("int8",),
            symmetric=True,
            algorithm="nnie",
            algorithm_is_grid=True,
            observer="ema-minmax",
        ),
    ),
    placement=INPUTS_ONLY,
)
