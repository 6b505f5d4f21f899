r"""Biases as onnxruntime's integer kernels add them.

    b  ->  round(b / (sx * sw)) * (sx * sw)

onnxruntime does this to float biases by itself. The change is tiny, half a step of a sum, but sums
that lie on the edge between two codes fall to the other side, and some networks make large errors
of that: not larger than those of quantization, but others. A network whose biases are on this
grid from the start computes the same with and without optimisation, and what is measured on it is
what users get.
"""

from __future__ import annotations

from onnxq.backend import Backend
from onnxq.graph import Model
from onnxq.pipeline import Pipeline
from onnxq.quant.qparams import Role
from passes.propagate_ranges import PropagateRanges
from passes.quantize_bias import QuantizeBias
from passes.round_bias import RoundBias


def round_biases(model: Model, backend: Backend) -> None:
    """Round the float biases of a canonical model in place, if `backend` is onnxruntime's."""
    if "deployed" not in backend.sessions:
        return
    # Quantizers are carried to the layers on a copy only: the backend's pipeline does so as well.
    carried = Pipeline(PropagateRanges(), QuantizeBias(coarser=True)).run(model).model
    before = list(model.qparams.rows)
    model.qparams.rows = [*before, *carried.qparams.of(Role.BIAS)]
    Pipeline(RoundBias()).run(model, in_place=True)
    model.qparams.rows = before


__all__ = ["round_biases"]
