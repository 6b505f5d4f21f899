"""Models for `pickle`, which by itself follows every link of the graph.

A pickled model is its protobuf with all weights in it, also those that lie in files beside the
model: it needs nothing else where it is read. What a protobuf does not hold (the quantization table
beside quantizers, notes) goes along.
"""

from __future__ import annotations

import copyreg
from typing import Any

from google.protobuf.message import EncodeError
from onnx import ModelProto

from onnxq.errors import SaveError
from onnxq.graph.model import Model, from_proto
from onnxq.quant.qparam_table import QParamTable


def _pickled(model: Model) -> tuple[Any, ...]:
    notes = model.export_notes
    try:
        data = model.to_proto().SerializeToString()
    except (EncodeError, ValueError) as error:
        raise SaveError(
            "a model larger than protobuf's limit of 2 GiB cannot be pickled",
            fix="write it with onnxq.save, and pickle the path",
        ) from error
    finally:
        model.export_notes = notes
    return _unpickled, (data, model.qparams, model.upgrades, notes)


def _unpickled(data: bytes, table: QParamTable, upgrades: list[str], notes: list[str]) -> Model:
    model = from_proto(ModelProto.FromString(data))
    model.qparams, model.upgrades, model.export_notes = table, upgrades, notes
    return model


copyreg.pickle(Model, _pickled)
