"""RKNN (Rockchip): int8 with a zero point for activations, symmetric int8 weights per channel.

With one scale per tensor ("qmethod: layer") weights may have a zero point: the toolkit's own files
contain such weights, and PPQ quantizes for it so. A tensor has one range: one that PPQ rounds for
some consumers only is rounded for all (the cost is measured).

The toolkit loads the QDQ model as it is (without quantizing it again). The other two files are for
its hybrid quantization, which takes a float model and a configuration with every range. Attributes
are written out: the toolkit fails if a LayerNormalization leaves its epsilon to the default.
"""

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import rknn_hybrid
from onnxq.operators.placement import TOTAL_INTEGER
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.materialize_attributes import MaterializeAttributes
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ, STRIP, WHOLE_INT8
from passes.share_quantizers import ShareQuantizers
from passes.to_qdq import ToQdq

_MODEL = "_deploy_model.onnx"

BACKEND = Backend(
    name="rknn",
    summary="RKNN: int8 activations, any zero point; int8 weights per channel; float biases",
    scheme=Scheme(
        weight=QSpec(("int8",), symmetric=True, asymmetric=("int8",), per_channel=True, lo=-127),
        activation=QSpec(("int8",), observer="ema-minmax"),
    ),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD_SYMMETRIC, *WHOLE_INT8, ShareQuantizers()),
    outputs=(
        OnnxFile(
            "_qdq.onnx",
            Pipeline(ToQdq(bias="float"), MaterializeAttributes()),
            "QDQ model for the toolkit",
        ),
        OnnxFile(
            _MODEL,
            Pipeline(*STRIP, MaterializeAttributes()),
            "clean float model for hybrid quantization",
            clean=True,
        ),
        TableFile("_deploy_model.quantization.cfg", rknn_hybrid.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=TOTAL_INTEGER,
)
