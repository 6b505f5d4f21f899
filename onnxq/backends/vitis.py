"""Vitis AI DPUs: int8 with power-of-two scales, for weights, activations and biases.

The DPU shifts instead of multiplying. Each operator writes codes, activation functions run inside
the operator they follow, and network inputs are quantized too. Layers read codes even where an
operator that the DPU leaves to the CPU comes before them.
File names and keys are MQBench's. The compiler accepts shifts within limits only; lint names the
layers that break them, and biases without a scale, which the DPU cannot add.
"""

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import mqbench_vitis
from onnxq.lint.vitis_shifts import VITIS_SHIFTS
from onnxq.operators.placement import Placement, kinds
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ, STRIP, WHOLE_INT8

_MODEL = "_deploy_model.onnx"

_PARAMETER = QSpec(
    ("int8",), symmetric=True, power_of_two=True, algorithm="tqt", observer="minmax-floor"
)

BACKEND = Backend(
    name="vitis",
    summary="Vitis AI: int8 per tensor, power-of-two scales, quantized biases",
    scheme=Scheme(
        weight=_PARAMETER,
        activation=QSpec(
            ("int8",), symmetric=True, power_of_two=True, algorithm="tqt", observer="pot-mode"
        ),
        bias=_PARAMETER,
    ),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD_SYMMETRIC, *WHOLE_INT8),
    outputs=(
        OnnxFile(_MODEL, Pipeline(*STRIP), "clean float model for the scales", clean=True),
        TableFile("_clip_ranges.json", mqbench_vitis.FORMAT, beside=_MODEL),
    ),
    proof="format",
    placement=Placement(
        inputs=kinds("Conv ConvTranspose Linear"),
        outputs=kinds(
            "Conv ConvTranspose Linear AveragePool GlobalAveragePool BatchNormalization Relu Clip",
            "PRelu Resize Add Sub Mul Concat",
        ),
        absorbed=kinds("Relu Clip"),
        graph_inputs=True,
        float_products="the chip multiplies codes with weights only",
    ),
    lint=(VITIS_SHIFTS,),
    mqbench=(
        "if a quantizer ends the network, its output is renamed, in the model too; here it keeps "
        "its name",
        "outputs of MaxPool and Flatten have no scale; here they have that of their input",
        "network inputs have no scale; here they have one",
        "newer versions do not quantize biases; here each has a scale",
    ),
)
