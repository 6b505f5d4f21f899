"""Copies of models for `copy` and `pickle`, which by themselves follow every link of the graph.

A pickled model is its protobuf with all weights in it, also those that lie in files beside the
model: it needs nothing else where it is read. What a protobuf does not hold (the quantization table
beside quantizers, notes) goes along.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_graphsurgeon as gs
from google.protobuf.message import EncodeError
from onnx import ModelProto

from onnxq.errors import SaveError

if TYPE_CHECKING:
    from onnxq.graph import Model
    from onnxq.qparam_table import QParamTable


class Copyable:
    """What makes `copy.copy`, `copy.deepcopy` and `pickle` work on a model."""

    def __copy__(self: Model) -> Model:  # type: ignore[misc]
        """A clone: the graph is its own, values of constants are shared."""
        return self.clone()

    def __deepcopy__(self: Model, _: dict[int, Any]) -> Model:  # type: ignore[misc]
        """A copy that shares no array; values not read yet stay where they lie."""
        twin = self.clone()
        for constant in _constants(twin):
            if isinstance(constant._values, np.ndarray):
                constant._values = constant._values.copy()
        return twin

    def __reduce__(self: Model) -> tuple[Any, ...]:  # type: ignore[misc]
        notes = self.export_notes
        try:
            data = self.to_proto().SerializeToString()
        except (EncodeError, ValueError) as error:
            raise SaveError(
                "a model larger than the 2 GiB of a protobuf cannot be pickled",
                fix="write it with onnxq.save, and pickle the path",
            ) from error
        finally:
            self.export_notes = notes
        return _unpickled, (data, self.qparams, self.upgrades, notes)


def _constants(model: Model) -> Iterator[gs.Constant]:
    yield from model.made
    for graph in model.graphs():
        yield from graph.record.constants
    for node in model.nodes():
        yield from (v for v in (*node.inputs, *node.attrs.values()) if isinstance(v, gs.Constant))


def _unpickled(data: bytes, table: QParamTable, upgrades: list[str], notes: list[str]) -> Model:
    from onnxq.graph import from_proto

    model = from_proto(ModelProto.FromString(data))
    model.qparams, model.upgrades, model.export_notes = table, upgrades, notes
    return model
