"""A backend from outside: one value, made from the phases and passes of onnxq and own ones."""

from mychip_onnxq.channel_count import CHANNEL_COUNT
from mychip_onnxq.name_nodes import NameNodes
from mychip_onnxq.scales_csv import FORMAT
from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.pipeline import Pipeline
from onnxq.quant import QSpec, Scheme
from passes.collect_qparams import CollectQParams
from passes.phases import CLEAN, FOLD, READ
from passes.remove_fake_quant import RemoveFakeQuant
from passes.retype_activations import RetypeActivations
from passes.to_qdq import ToQdq
from passes.widen_range import WidenRange

BACKEND = Backend(
    name="mychip",
    summary="int8 symmetric QDQ with a name on every node; scales as CSV beside a clean model",
    scheme=Scheme(
        weight=QSpec(("int8",), symmetric=True, per_channel=True),
        activation=QSpec(("int8",), symmetric=True, full_range=True),
    ),
    pipeline=Pipeline(*READ, *CLEAN, *FOLD, RetypeActivations(to="int8"), WidenRange()),
    outputs=(
        OnnxFile("_mychip.onnx", Pipeline(ToQdq(bias="float"), NameNodes()), "QDQ model"),
        OnnxFile(
            "_clean.onnx", Pipeline(CollectQParams(), RemoveFakeQuant(), NameNodes()), "float model"
        ),
        TableFile("_scales.csv", FORMAT, beside="_clean.onnx"),
    ),
    proof="consumer",
    sessions=("reference", "deployed"),
    lint=(CHANNEL_COUNT,),
)
