"""Copies of models for `copy`, which by itself follows every link of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_graphsurgeon as gs

if TYPE_CHECKING:
    from onnxq.graph import Model


class Copyable:
    """Lets `copy.copy` and `copy.deepcopy` work on a model."""

    def __copy__(self: Model) -> Model:  # type: ignore[misc]
        """A clone: a graph of its own, with shared values of constants."""
        return self.clone()

    def __deepcopy__(self: Model, _: dict[int, Any]) -> Model:  # type: ignore[misc]
        """A copy that shares no array; values not read yet stay in their file."""
        twin = self.clone()
        for constant in _constants(twin):
            if isinstance(constant._values, np.ndarray):
                constant._values = constant._values.copy()
        return twin


def _constants(model: Model) -> Iterator[gs.Constant]:
    yield from model.made
    for graph in model.graphs():
        yield from graph.record.constants
    for node in model.nodes():
        yield from (v for v in (*node.inputs, *node.attrs.values()) if isinstance(v, gs.Constant))
