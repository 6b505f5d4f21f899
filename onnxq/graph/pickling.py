"""Models for `pickle`, which by itself follows every link of the graph.

A pickled model is its protobuf with all weights, including those in files next to the model, so
nothing else is needed to read it. Rows of the quantization table without a quantizer, and notes,
which a protobuf does not contain, are pickled with it.
"""

from __future__ import annotations

import copyreg
from typing import Any

from onnx import ModelProto

from onnxq.graph.model import Model, from_proto
from onnxq.quant.qparam_table import QParamTable
from onnxq.storage.model_files import serialize


def _pickled(model: Model) -> tuple[Any, ...]:
    notes = model.export_notes
    try:
        proto = model.to_proto()
    finally:
        model.export_notes = notes
    fix = "write it with onnxq.save, and pickle the path"
    data = serialize(proto, "a model to be pickled", fix)
    return _unpickled, (data, model.qparams, model.upgrades, notes)


def _unpickled(data: bytes, table: QParamTable, upgrades: list[str], notes: list[str]) -> Model:
    model = from_proto(ModelProto.FromString(data))
    model.qparams, model.upgrades, model.export_notes = table, upgrades, notes
    return model


copyreg.pickle(Model, _pickled)
