"""Round weights to their grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.arrays.pieces import equal
from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG, data_max_of, logarithmic
from onnxq.canonical.quantized_weights import on_grid, quantized_weights
from onnxq.edit import new_values, set_input
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.graph.dequantized import loaded
from onnxq.pass_ import Pass, Trace
from onnxq.quant.blockwise import same_codes


@dataclass(frozen=True)
class RoundWeights(Pass):
    """Replace each constant weight by the output of its quantizer.

    The float file then contains the trained values, whatever a tool that reads it quantizes. Codes
    do not move: (q - z)·s divided by s rounds to q - z again. Nor do those of logarithmic grids,
    whose values are 4 % apart, more than float16 rounds.
    """

    name: ClassVar[str] = "round-weights"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node, params, weight in quantized_weights(model):
            source = node.inputs[0]
            name = source.name
            rounded = on_grid(params, weight)
            if rounded is weight or equal(loaded(rounded), loaded(weight)):
                trace.skip(node, f"'{name}' is on its grid")
            elif not same_codes(params, loaded(rounded), loaded(weight)):
                what = f"the {params.qtype} values of '{name}'"
                trace.skip(node, f"{weight.dtype} cannot distinguish {what}")
            else:
                set_input(node, 0, new_values(model, source, rounded, node))
                trace.rewrote(node, f"'{name}'")
        for node in model.nodes(FAKE_QUANTIZE_LOG):
            source = node.inputs[0]
            values = array(source)
            if values is None:
                continue
            rounded = logarithmic(values, data_max_of(node))
            if np.array_equal(rounded, values):
                trace.skip(node, f"'{source.name}' is on its grid")
            else:
                trace.rewrote(node, f"'{source.name}'")
                set_input(node, 0, new_values(model, source, rounded, node))
