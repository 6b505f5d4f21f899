"""NNIE (HiSilicon): a logarithmic grid of 16 codes per octave, given by the largest magnitude.

File names, keys and numbers are MQBench's. Two things differ. MQBench cuts weights to their
largest magnitude and leaves the rounding to the chip; onnxq rounds them too. Values on the grid
stay as they are when they are rounded again, so the chip has the trained weights in both cases,
and the file can be proven by itself. And MQBench gives a tensor the number of its last quantizer,
whoever reads it; onnxq tells it for the readers that have one.

The file has no place for the inputs of grouped convolutions and of some other operators
(`onnxq.gfpq`). Quantizers are moved to where it has one if that is exact, and dropped otherwise
(the cost is measured). Resize by whole factors becomes Upsample. No NNIE compiler is public:
what is proven is that the files hold the network.
"""

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import mqbench_nnie
from onnxq.pipeline import Pipeline
from onnxq.placement import INPUTS_ONLY
from onnxq.scheme import QSpec, Scheme
from passes.collect_qparams import CollectQParams
from passes.drop_untold_quantizers import DropUntoldQuantizers
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ
from passes.propagate_ranges import PropagateRanges
from passes.remove_fake_quant import RemoveFakeQuant
from passes.resize_to_upsample import ResizeToUpsample
from passes.round_weights import RoundWeights
from passes.sink_log_quantizers import SinkLogQuantizers

_MODEL = "_deploy_model.onnx"

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
    pipeline=Pipeline(
        *READ,
        *CLEAN,
        *FOLD_SYMMETRIC,
        PropagateRanges(backward=False),
        SinkLogQuantizers(),
        ResizeToUpsample(),
        DropUntoldQuantizers(),
    ),
    outputs=(
        OnnxFile(
            _MODEL,
            Pipeline(RoundWeights(), CollectQParams(), RemoveFakeQuant()),
            "clean float model, weights on their grids",
            clean=True,
        ),
        TableFile("_gfpq_param_dict.json", mqbench_nnie.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=INPUTS_ONLY,
)
