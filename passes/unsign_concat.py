"""Store the inputs of a Concat as uint8 instead of int8: other codes, the same values.

    q + 128, z + 128, the range alike

OpenVINO runs Concat on uint8 and takes int8 codes of Q/DQ as uint8, which is a quarter of the range
off. Codes that are uint8 in the file come out right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.analysis.accumulator_bounds import input_quantizer
from onnxq.canonical.fake_quantize import params_of, set_params
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace
from onnxq.quant.unsigned_codes import unsigned


@dataclass(frozen=True)
class UnsignConcat(Pass):
    """Store int8 codes of the inputs of a Concat as uint8; values stay the same."""

    name: ClassVar[str] = "unsign-concat"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for concat in model.nodes("Concat"):
            for tensor in concat.inputs:
                node = input_quantizer(tensor)
                if node is None or is_constant(node.inputs[0]):
                    continue
                params = params_of(node)
                moved = unsigned(params)
                if moved is not None:
                    set_params(model, node, moved)
                    trace.rewrote(node, f"'{params.tensor}' is uint8 for the Concat")
