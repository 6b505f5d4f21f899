"""RKNN (Rockchip): int8 with a zero point for activations, symmetric int8 weights per channel.

The toolkit loads the QDQ model as it is (without quantizing it again). The other two files are for
its hybrid quantization, which takes a float model and a configuration with every range.
"""

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import rknn_hybrid
from onnxq.pipeline import Pipeline
from onnxq.placement import TOTAL_INTEGER
from onnxq.scheme import QSpec, Scheme
from passes.fill_weight_range import FillWeightRange
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ, STRIP
from passes.propagate_ranges import PropagateRanges
from passes.retype_activations import RetypeActivations
from passes.to_qdq import ToQdq
from passes.widen_range import WidenRange

_MODEL = "_deploy_model.onnx"

BACKEND = Backend(
    name="rknn",
    summary="RKNN: int8 activations, any zero point; int8 weights per channel; float biases",
    scheme=Scheme(
        weight=QSpec(("int8",), symmetric=True, per_channel=True, lo=-127),
        activation=QSpec(("int8",), observer="ema-minmax"),
    ),
    pipeline=Pipeline(
        *READ,
        *CLEAN,
        *FOLD_SYMMETRIC,
        PropagateRanges(),
        RetypeActivations(to="int8"),
        WidenRange(),
        FillWeightRange(),
    ),
    outputs=(
        OnnxFile("_qdq.onnx", Pipeline(ToQdq(bias="float")), "QDQ model for the toolkit"),
        OnnxFile(_MODEL, Pipeline(*STRIP), "clean float model for hybrid quantization", clean=True),
        TableFile("_deploy_model.quantization.cfg", rknn_hybrid.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=TOTAL_INTEGER,
)
