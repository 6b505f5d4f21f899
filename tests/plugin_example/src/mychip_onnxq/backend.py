"""A third-party backend: one value, made from the phases and passes of onnxq and own ones.

`placement` says which tensors the chip holds as codes, the scheme which types they have and how
training finds them: `torch_bridge.prepare(model, "mychip", ...)` needs nothing else.
"""

from mychip_onnxq.channel_count import CHANNEL_COUNT
from mychip_onnxq.name_nodes import NameNodes
from mychip_onnxq.scales_csv import FORMAT
from onnxq.backend import Backend, OnnxFile, Placement, TableFile, add_op_kind
from onnxq.pipeline import Pipeline
from onnxq.quant import QSpec, Scheme
from passes.collect_qparams import CollectQParams
from passes.phases import CLEAN, FOLD, READ
from passes.remove_fake_quant import RemoveFakeQuant
from passes.retype_activations import RetypeActivations
from passes.to_qdq import ToQdq
from passes.widen_range import WidenRange

LAYERS = frozenset({"Conv", "Linear", "Add"})
add_op_kind("Selu")  # no backend of onnxq speaks of it

BACKEND = Backend(
    name="mychip",
    summary="int8 symmetric QDQ with a name on every node; scales as CSV beside a clean model",
    scheme=Scheme(
        weight=QSpec(("int8",), symmetric=True, per_channel=True, algorithm="ewgs"),
        activation=QSpec(
            ("int8",), symmetric=True, full_range=True, algorithm="lsq", observer="median-minmax"
        ),
    ),
    placement=Placement(
        inputs=LAYERS,
        outputs=LAYERS,
        absorbed=frozenset({"Relu", "LeakyRelu", "Selu"}),  # run in the layer before them
    ),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD, RetypeActivations(to="int8"), WidenRange()),
    outputs=(
        OnnxFile("_mychip.onnx", Pipeline(ToQdq(bias="float"), NameNodes()), "QDQ model"),
        OnnxFile(
            "_clean.onnx", Pipeline(CollectQParams(), RemoveFakeQuant(), NameNodes()), "float model"
        ),
        TableFile("_scales.csv", FORMAT, beside="_clean.onnx"),
    ),
    proof="format",
    sessions=("reference", "deployed"),
    lint=(CHANNEL_COUNT,),
)
