"""PPL on NVIDIA GPUs: uint8, weights per channel with a zero point each.

`_clip_ranges.json` has MQBench's name and is text, as MQBench's loaders expect: the largest
magnitude of each activation, without weights and zero points. `_ppl_nn.json` is for the public
engine (ppl.nn); it contains everything, and the proof reads it back. Both have one range per
tensor: one that PPQ rounds for some consumers only is rounded for all (the cost is measured).
"""

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import mqbench_ppl_cuda, ppl_nn
from onnxq.operators.placement import TOTAL_INTEGER
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD, READ, STRIP, WHOLE_UINT8
from passes.share_quantizers import ShareQuantizers

_MODEL = "_deploy_model.onnx"

BACKEND = Backend(
    name="ppl-cuda",
    summary="PPL CUDA: uint8, weights per channel, any zero point, float biases",
    scheme=Scheme(weight=QSpec(("uint8", "int8"), per_channel=True), activation=QSpec(("uint8",))),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD, *WHOLE_UINT8, ShareQuantizers()),
    outputs=(
        OnnxFile(_MODEL, Pipeline(*STRIP), "clean float model for the parameters", clean=True),
        TableFile("_clip_ranges.json", mqbench_ppl_cuda.FORMAT, beside=_MODEL),
        TableFile("_ppl_nn.json", ppl_nn.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=TOTAL_INTEGER,
    mqbench=(
        "if a quantizer ends the network, its output is renamed, in the model too; here it keeps "
        "its name",
        "with newer numpy the lower end of a range is computed in uint8 and wraps, also for "
        "clipping weights, which become one number per channel; here neither happens",
        "the file that ppl.nn reads does not exist there",
    ),
)
