"""The setting of papers: few bits in convolutions and linear layers, 8 in the first and last.

No chip runs it; it compares algorithms. BatchNorm stays apart in training and in the file, so
weights are quantized as they are stored. The file is the canonical form, which onnxruntime runs as
it is: any number of bits, any zero point and granularity.
"""

from onnxq.backend import Backend, OnnxFile
from onnxq.operators.placement import Placement
from onnxq.operators.traits import WEIGHTED
from onnxq.pipeline import Pipeline
from onnxq.quant.qtypes import QTYPES
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, READ


def _types(*first: str) -> tuple[str, ...]:
    """All types that quantizers have, these first."""
    return first + tuple(name for name in QTYPES if name not in (*first, "int32"))


BACKEND = Backend(
    name="academic",
    summary="4 bits in convolutions and linear layers, 8 in the first and last; for experiments",
    scheme=Scheme(
        weight=QSpec(
            _types("int4", "int8", "int2", "int16"),
            per_channel=True,
            blocks=True,
            observer="lsq",
            train_symmetric=True,
        ),
        activation=QSpec(
            _types("uint4", "uint8", "uint2", "uint16", "int8"),
            per_channel=True,
            blocks=True,
            observer="lsq",
        ),
    ),
    pipeline=Pipeline(*READ, *CLEAN),
    outputs=(OnnxFile("_canonical.onnx", Pipeline(), "model with onnxq::FakeQuantize nodes"),),
    proof="format",
    placement=Placement(
        inputs=WEIGHTED,
        boundary_bits=8,
        fuse=False,
        unsigned=True,
        float_products="papers count the bits of layers with weights; the backend 'academic-nlp' "
        "has them on codes",
    ),
    mqbench=(
        "newer versions write QuantizeLinear alone, so 4-bit codes extend to 8 bits; here the "
        "range is part of the operator",
    ),
)
