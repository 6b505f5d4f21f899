"""Scales that come back from their inverse, for targets that store the inverse.

Where a target multiplies by f = 1 / s, its file holds f in float32, and whoever reads it takes
s' = 1 / f for the scale. Of all float32 numbers, 83 % come back as they are (s' = s); the others
differ in their last bit. s' itself comes back: its inverse is f again. So this moves scales to what
the file will say, by one bit at most.

One bit of a scale matters only to values in the middle between two codes. In a deep network there
are such values, and each code that changes spreads; that is why the change is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array


@dataclass(frozen=True)
class InvertibleScales(Pass):
    """Move scales by one bit where the inverse of their float32 inverse is another number."""

    name: ClassVar[str] = "invertible-scales"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes(FAKE_QUANTIZE):
            params = params_of(node)
            if params.qtype.floating or node.inputs[1].dtype != np.float32:
                trace.skip(node, "its scale is not a float32 of an integer grid")
                continue
            stored = _inverse(_inverse(params.scale))
            moved = int((stored != params.scale).sum())
            if not moved:
                continue
            if not (np.isfinite(stored).all() and (stored > 0).all()):
                trace.skip(node, "the inverse of its scale is beyond float32")
                continue
            set_params(model, node, params.with_(scale=stored))
            trace.rewrote(node, f"{moved} of {stored.size} scales by one bit")


def _inverse(scale: Array) -> Array:
    with np.errstate(over="ignore", divide="ignore"):
        made: Array = (1.0 / scale.astype(np.float64)).astype(np.float32)
    return made
