"""MNN: a float model and compression parameters, which its converter puts together.

int8 with zero point 0; weights have one scale per output channel. Every operator reads and writes
codes, activation functions run inside the operator they follow. The format has zero points for
activations, but MNN computes them wrongly: a max pool of codes with another zero point than 0 is
off by the whole range (measured with MNN 3.6.1). The converter refuses QDQ models, so the float
model is the one to give:

    MNNConvert -f ONNX --modelFile <stem>_deploy_model.onnx --MNNModel <stem>.mnn
               --compressionParamsFile <stem>_mnn_compression.bin
"""

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import mnn_compression
from onnxq.operators.placement import TOTAL_INTEGER
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ, STRIP
from passes.propagate_ranges import PropagateRanges
from passes.retype_activations import RetypeActivations
from passes.unify_scales import UnifyScales

_MODEL = "_deploy_model.onnx"

BACKEND = Backend(
    name="mnn",
    summary="MNN: int8 symmetric, weights per channel, float biases",
    scheme=Scheme(
        weight=QSpec(("int8", "int4", "int2"), symmetric=True, per_channel=True, lo=-127),
        activation=QSpec(("int8",), symmetric=True, observer="ema-minmax"),
    ),
    pipeline=Pipeline(
        *READ,
        *CLEAN,
        *FOLD_SYMMETRIC,
        RetypeActivations(to="int8"),
        PropagateRanges(),
        UnifyScales(),
    ),
    outputs=(
        OnnxFile(
            _MODEL, Pipeline(*STRIP), "clean float model for the parameters below", clean=True
        ),
        TableFile("_mnn_compression.bin", mnn_compression.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=TOTAL_INTEGER,
)
