"""STPU (SenseTime): int8 on -127..127 with zero point 0, one range per tensor, fixed scales.

File names and keys are MQBench's.
"""

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import mqbench_stpu
from onnxq.operators.placement import TOTAL_INTEGER
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ, STRIP
from passes.propagate_ranges import PropagateRanges
from passes.retype_activations import RetypeActivations
from passes.unify_scales import UnifyScales

_MODEL = "_for_stpu.onnx"

BACKEND = Backend(
    name="stpu",
    summary="STPU: int8 per tensor, symmetric on -127..127, float biases",
    scheme=Scheme(
        weight=QSpec(("int8",), symmetric=True, full_range=True, lo=-127, algorithm="fixed"),
        activation=QSpec(
            ("int8",),
            symmetric=True,
            full_range=True,
            lo=-127,
            algorithm="fixed",
            observer="ema-minmax",
        ),
    ),
    pipeline=Pipeline(
        *(*READ, *CLEAN, *FOLD_SYMMETRIC),
        *(PropagateRanges(constants=False), RetypeActivations(to="int8"), UnifyScales()),
    ),
    outputs=(
        OnnxFile(_MODEL, Pipeline(*STRIP), "clean float model for the ranges", clean=True),
        TableFile("_stpu_minmax.json", mqbench_stpu.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=TOTAL_INTEGER,
    mqbench=(
        "the output of a Sigmoid gets the range -1..1; here the trained one",
        "the range of a Concat replaces those of its inputs; here each keeps its own",
        "a multiplication after a convolution is folded into its weight and the weight's range; "
        "here it stays, and the weight keeps its trained range",
    ),
)
