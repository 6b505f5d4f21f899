"""Named phases that backends put their pipelines together from."""

from passes.clip_weights import ClipWeights
from passes.collect_qparams import CollectQParams
from passes.correct_opset import CorrectOpset
from passes.drop_identity import DropIdentity
from passes.drop_zero_pad import DropZeroPad
from passes.fill_weight_range import FillWeightRange
from passes.fold_affine import FoldAffine
from passes.fold_batch_norm import FoldBatchNorm
from passes.fold_constants import FoldConstants
from passes.infer_shapes import InferShapes
from passes.lower_constants import LowerConstants
from passes.lower_einsum import LowerEinsum
from passes.propagate_ranges import PropagateRanges
from passes.read_composed import ReadComposed
from passes.read_matmul_nbits import ReadMatmulNbits
from passes.read_mqbench import ReadMqbench
from passes.read_openvino import ReadOpenvino
from passes.read_ppq import ReadPpq
from passes.read_qdq import ReadQdq
from passes.read_qonnx import ReadQonnx
from passes.read_qoperator import ReadQoperator
from passes.remove_fake_quant import RemoveFakeQuant
from passes.retype_activations import RetypeActivations
from passes.split_shared_weights import SplitSharedWeights
from passes.turn_weights import TurnWeights
from passes.unify_scales import UnifyScales
from passes.widen_range import WidenRange

READ = (
    ReadPpq(),
    CorrectOpset(),
    ReadMqbench(),
    ReadQonnx(),
    ReadOpenvino(),
    ReadMatmulNbits(),
    ReadComposed(),
    ReadQoperator(),
    ReadQdq(),
)
"""Every dialect to the canonical form.

The first two repair what keeps a runtime from loading the file: private operators, then an opset
stamp too old for their replacements. Integer operators become Q/DQ around float ones, so that
reader comes before the one of Q/DQ.
"""

CLEAN = (
    InferShapes(),
    LowerEinsum(),
    LowerConstants(),
    FoldConstants(),
    DropIdentity(),
    DropZeroPad(),
    SplitSharedWeights(),
    TurnWeights(),
)
"""Constants as initializers, weights as their layers read them, products of matrices as such, no
operators without effect."""

FOLD = (FoldAffine(), FoldBatchNorm())
"""Normalisation and scaling folded into their layers, whole chains first."""

FOLD_SYMMETRIC = (FoldAffine(flip=False), FoldBatchNorm(flip=False))
"""The same for targets whose weights have zero point 0: folds that would move it are skipped."""

WHOLE_UINT8, WHOLE_INT8 = (
    (
        *(PropagateRanges(), RetypeActivations(to=to, whole=True), WidenRange()),
        *(FillWeightRange(), UnifyScales()),
    )
    for to in ("uint8", "int8")
)
"""Activations in one type, every range as wide as its type and one per tensor if its consumers
agree: for targets that support nothing else."""

STRIP = (ClipWeights(), CollectQParams(), RemoveFakeQuant())
"""The clean float model with its quantization in the table: for side files."""

__all__ = ["CLEAN", "FOLD", "FOLD_SYMMETRIC", "READ", "STRIP", "WHOLE_INT8", "WHOLE_UINT8"]
