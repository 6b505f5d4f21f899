"""Store weights as uint8 if int8 kernels could saturate: other codes, the same values.

    q + 128, z + 128, the range alike

On x86 CPUs with AVX2 but without VNNI, onnxruntime adds pairs of u8 x s8 products in 16 bits, which
clips their sum. Products of u8 x u8 take another kernel, which does not. It is slower, so weights
whose codes cannot saturate (`onnxq.analysis.accumulator_bounds`) stay int8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.analysis.accumulator_bounds import bounds
from onnxq.canonical.fake_quantize import params_of, set_params
from onnxq.folding.linear import read_layer
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Role
from onnxq.quant.unsigned_codes import unsigned


@dataclass(frozen=True)
class UnsignWeights(Pass):
    """Store int8 weights as uint8 if a 16-bit sum of two products could saturate."""

    name: ClassVar[str] = "unsign-weights"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for found in bounds(model):
            if found.fits_pairs:
                trace.skip(found.node, "no two products can saturate 16 bits")
                continue
            node = read_layer(found.node).fake
            assert node is not None  # layers without one have no bounds
            params = params_of(node, role=Role.WEIGHT)
            moved = unsigned(params)
            assert moved is not None  # unsigned weights form no such pairs
            set_params(model, node, moved)
            reach = f"two products could reach {found.pair_low}..{found.pair_high}"
            trace.rewrote(node, f"'{params.tensor}' is uint8: {reach}")
