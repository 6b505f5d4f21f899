"""ncnn: int8 layers in its own .param and .bin files, which it runs as they are.

A convolution or a product with a constant reads codes -127..127 with zero point 0 and gives real
numbers; the rest of the network is float. Weights have one scale per output channel; a grouped
convolution with several scales in a group becomes one convolution per group. The quantizer is
directly before such a layer, also after a pool. If another operator reads the same tensor, separate
layers round it for that operator, so the network computes what was trained.

The table is for ncnn's own tools: PPQ writes the same, with six decimal places instead of all.
"""

from onnxq.backend import Backend, OnnxFile, TableFile, Variant
from onnxq.formats import ncnn_table
from onnxq.ncnn import reader, writer
from onnxq.operators.placement import Placement, kinds
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from onnxq.side_files.native_format import NativeFile, NativeFormat
from passes.clip_weights import ClipWeights
from passes.collect_qparams import CollectQParams
from passes.fold_sizes import FoldSizes
from passes.infer_shapes import InferShapes
from passes.invertible_scales import InvertibleScales
from passes.phases import CLEAN, FOLD_SYMMETRIC, READ
from passes.propagate_ranges import PropagateRanges
from passes.remove_fake_quant import RemoveFakeQuant
from passes.retype_activations import RetypeActivations
from passes.to_qdq import ToQdq
from passes.unify_scales import UnifyScales

_INT8 = kinds("Conv Linear")
_NCNN = NativeFormat("ncnn", writer.write, reader.read)
_LEGAL = (*READ, *CLEAN, FoldSizes(), *FOLD_SYMMETRIC, RetypeActivations(to="int8"))
_CLEAN = OnnxFile(
    "_deploy_model.onnx",
    Pipeline(ClipWeights(), CollectQParams(), RemoveFakeQuant()),
    "clean float model",
    clean=True,
)

BACKEND = Backend(
    name="ncnn",
    summary="ncnn: int8 symmetric on -127..127, weights per channel, float biases",
    scheme=Scheme(
        weight=QSpec(
            ("int8", "int4", "int2"), symmetric=True, per_channel=True, full_range=True, lo=-127
        ),
        activation=QSpec(
            ("int8",), symmetric=True, full_range=True, lo=-127, observer="ema-minmax"
        ),
    ),
    pipeline=Pipeline(*_LEGAL, PropagateRanges(backward=False), InferShapes(), InvertibleScales()),
    outputs=(
        OnnxFile(
            "_qdq.onnx",
            Pipeline(ToQdq(bias="float")),
            "QDQ model: the same network, for comparison",
        ),
        NativeFile(".ncnn.param", _NCNN, "param", "layers of the int8 network, as text"),
        NativeFile(".ncnn.bin", _NCNN, "bin", "int8 weights and scales", binary=True),
    ),
    float16=False,
    proof="consumer",
    consumers=("ncnn 1.0.20261020",),
    placement=Placement(inputs=_INT8, weights=_INT8, moves=frozenset()),
    variants={
        "table": Variant(
            "clean model and quantization table, for ncnn's own converters",
            pipeline=Pipeline(*_LEGAL, UnifyScales()),
            outputs=(
                _CLEAN,
                TableFile(".ncnn.table", ncnn_table.FORMAT, beside=_CLEAN.suffix),
            ),
        )
    },
)
