"""The setting of papers: few bits in convolutions and linear layers, 8 in the first and last.

No chip runs it; it compares algorithms. BatchNorm stays apart in training, so weights are
quantized as they are stored.
"""

from onnxq.backend import Backend
from onnxq.placement import WEIGHTED, Placement
from onnxq.scheme import QSpec, Scheme

BACKEND = Backend(
    name="academic",
    summary="4 bits in convolutions and linear layers, 8 in the first and last; for experiments",
    scheme=Scheme(
        weight=QSpec(
            ("int4", "int8", "int2", "int16"), symmetric=True, per_channel=True, observer="lsq"
        ),
        activation=QSpec(("uint4", "uint8", "uint2", "uint16", "int8"), observer="lsq"),
    ),
    placement=Placement(inputs=WEIGHTED, boundary_bits=8, fuse=False),
)
