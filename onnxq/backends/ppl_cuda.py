"""PPL on NVIDIA GPUs: uint8, weights per channel with a zero point each."""

from onnxq.backend import Backend
from onnxq.placement import TOTAL_INTEGER
from onnxq.scheme import QSpec, Scheme

BACKEND = Backend(
    name="ppl-cuda",
    summary="PPL CUDA: uint8, weights per channel, any zero point, float biases",
    scheme=Scheme(weight=QSpec(("uint8",), per_channel=True), activation=QSpec(("uint8",))),
    placement=TOTAL_INTEGER,
)
