"""NNIE (HiSilicon): a logarithmic grid of 16 codes per octave, given by the largest magnitude.

File names, keys and numbers are MQBench's. Weights are rounded. Values on the grid stay as they
are when the chip rounds them again, and the file can be proven by itself.

The file cannot contain the inputs of grouped convolutions and of some other operators
(`onnxq.side_files.nnie_inputs`). MQBench trains quantizers there nevertheless, since the chip
rounds there too, with its compiler's own numbers. So does onnxq, and the report of
`torch_bridge.prepare` names them. A conversion moves them to a tensor that the file can contain if
that is exact, and drops them otherwise (the cost is measured).

Resize by integer factors becomes Upsample. No NNIE compiler is public: the proof is that the files
contain the network.
"""

from dataclasses import replace

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import mqbench_nnie
from onnxq.operators.placement import INPUTS_ONLY, KINDS
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from onnxq.side_files.nnie_inputs import UNWRITABLE
from passes.collect_qparams import CollectQParams
from passes.drop_unwritable_quantizers import DropUnwritableQuantizers
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
        DropUnwritableQuantizers(),
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
    placement=replace(INPUTS_ONLY, unwritable=KINDS & UNWRITABLE, unwritable_groups=True),
    mqbench=(
        "weights are clipped to their largest magnitude and rounded by the chip; here they are "
        "already rounded, with the same result on the chip",
        "a tensor gets the number of its last quantizer for all consumers; here only the "
        "consumers with a quantizer get it",
        "newer versions leave DequantizeLinear nodes without an input; here the model is valid",
    ),
)
