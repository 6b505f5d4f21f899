"""Tengine's uint8 mode: every tensor, network outputs included, has a scale and a zero point.

A Relu after anything but a convolution is a separate operator here, with quantizers on both sides.
File names are MQBench's. Tengine quantizes weights itself, per tensor from their smallest and
largest value: in the clean model they are clipped to the range they were trained with. A tensor has
one range: one that PPQ rounds for some consumers only is rounded for all (the cost is measured).
"""

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import tengine_scale
from onnxq.operators.placement import LAYERS, MOVES, Placement, kinds
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD, READ, STRIP
from passes.propagate_ranges import PropagateRanges
from passes.retype_activations import RetypeActivations
from passes.share_quantizers import ShareQuantizers
from passes.unify_scales import UnifyScales
from passes.widen_range import WidenRange

_INTEGER = LAYERS | kinds("Concat HardSwish Sigmoid")
_MODEL = "_for_tengine.onnx"

BACKEND = Backend(
    name="tengine",
    summary="Tengine: uint8 per tensor, any zero point, float biases",
    scheme=Scheme(
        weight=QSpec(("uint8",)),
        activation=QSpec(("uint8",), full_range=True, observer="ema-minmax"),
    ),
    pipeline=Pipeline(
        *(*READ, *CLEAN, *FOLD),
        *(
            PropagateRanges(),
            RetypeActivations(to="uint8", whole=True),
            WidenRange(),
            UnifyScales(),
            ShareQuantizers(),
        ),
    ),
    outputs=(
        OnnxFile(_MODEL, Pipeline(*STRIP), "clean float model for the scales", clean=True),
        TableFile("_for_tengine.scale", tengine_scale.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=Placement(inputs=_INTEGER, outputs=_INTEGER - MOVES, graph_outputs=True),
    mqbench=(
        "if a quantizer ends the network, its output is renamed, in the model too; here it keeps "
        "its name",
        "the weight of a ConvTranspose is listed with the activations; not here",
        "with newer numpy the lower end for clipping weights is computed in uint8 and wraps: all "
        "weights become one number; not here",
    ),
)
