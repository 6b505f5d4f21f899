"""Turn Constant nodes into initializers, the only form of constants that most tools look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.folding.to_initializers import freeze
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.running.constant_evaluation import known_values


@dataclass(frozen=True)
class LowerConstants(Pass):
    """Turn Constant nodes into initializers of the same name and type.

    The type is the one ONNX gives each attribute: value_float(s) float32, value_int(s) int64,
    value_string(s) string; sparse_value becomes dense. Values of `value` are shared, not copied.
    """

    name: ClassVar[str] = "lower-constants"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        lowered, values = [], {}
        for node in model.nodes("Constant"):
            known = known_values(node.outputs[0])
            if known is None:
                trace.skip(node, f"none of its attributes {sorted(node.attrs)} contains a value")
                continue
            values[id(node.outputs[0])] = known
            lowered.append(node)
            trace.rewrote(node, f"'{node.outputs[0].name}' is an initializer")
        freeze(model, lowered, values)
