"""The same jobs with onnxq, checks and reports included, as `onnxq run` does them."""

from __future__ import annotations

from pathlib import Path

import onnx

import onnxq
from benchmarks.models import Chain
from onnxq.edit import constant, set_input
from onnxq.graph import from_proto
from onnxq.graph.constants import array
from onnxq.pipeline import Pipeline
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.reading import canonical

FOLD = "fold-batch-norm"
FOLD_AND_QUANTIZE = "fold-batch-norm,apply-qparams,to-qdq"


def fold_and_quantize(chain: Chain) -> bytes:
    """Serialized model in, serialized model out; the table is built here, from plain numbers."""
    table = _table(chain)
    model = from_proto(onnx.load_model_from_string(chain.data))
    model.qparams = table
    Pipeline.parse(FOLD_AND_QUANTIZE).run(model, in_place=True)
    return model.to_proto().SerializeToString()


def fold(data: bytes) -> bytes:
    """BatchNormalization folding alone."""
    model = from_proto(onnx.load_model_from_string(data))
    Pipeline.parse(FOLD).run(model, in_place=True)
    return model.to_proto().SerializeToString()


def read(data: bytes) -> bytes:
    """A quantized model of any dialect to the canonical form: all readers run."""
    model, _ = canonical(from_proto(onnx.load_model_from_string(data)), in_place=True)
    return model.to_proto().SerializeToString()


def rewrite_two_weights(source: Path, target: Path) -> None:
    """Scale the first two weights of a large model, and save it beside the original."""
    model = onnxq.load(source)
    for node in model.nodes("MatMul")[:2]:
        weight = node.inputs[1]
        set_input(node, 1, constant(model, f"{weight.name}.scaled", array(weight) * 0.5))
    onnxq.save(model, target)


def _table(chain: Chain) -> QParamTable:
    uint8, int8 = qtype("uint8"), qtype("int8")
    rows = [
        QParams(tensor, uint8, scale, zero_point)
        for tensor, (scale, zero_point) in chain.activations.items()
    ]
    rows += [
        QParams(f"{weight}.folded", int8, scale, 0, axis=0, role=Role.WEIGHT)
        for weight, scale in chain.weights.items()
    ]
    return QParamTable(rows)
