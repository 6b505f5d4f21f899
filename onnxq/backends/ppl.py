"""PPL on DSPs: 8-bit weights, 16-bit activations, both unsigned with a zero point.

File names and keys are MQBench's. In training, scales of 16 bits stay as observed, while MQBench
trains them: `torch_bridge.insertion.overrides` says why.
"""

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import mqbench_ppl
from onnxq.operators.placement import TOTAL_INTEGER
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD, READ, STRIP, WHOLE_UINT8

_MODEL = "_deploy_model.onnx"

BACKEND = Backend(
    name="ppl",
    summary="PPL W8A16: uint8 weights, uint16 activations, per tensor, float biases",
    scheme=Scheme(
        weight=QSpec(("uint8",)),
        activation=QSpec(("uint16", "uint8"), observer="ema-minmax"),
    ),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD, *WHOLE_UINT8),
    outputs=(
        OnnxFile(_MODEL, Pipeline(*STRIP), "clean float model for the parameters", clean=True),
        TableFile("_clip_ranges.json", mqbench_ppl.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=TOTAL_INTEGER,
    mqbench=(
        "if a quantizer ends the network, its output is renamed, in the model too; here it keeps "
        "its name",
        "newer versions truncate 16-bit zero points to 8 bits, and the ranges with them; not here",
    ),
)
