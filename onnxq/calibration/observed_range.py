"""The range of a tensor that was observed: by a method, without what a Softmax ignores."""

from __future__ import annotations

from onnxq.calibration.ranges import KnownRange
from onnxq.observing.range_methods import Method
from onnxq.observing.tensor_statistics import TensorStatistics
from onnxq.quant.scheme import QSpec

FADES = 20.0
"""exp(-20) is 2e-9: what lies this far below the largest value of a row does not change a Softmax.
Masks put -1e4 or less there, and a range that covers the mask leaves no codes for the rest."""


def observed_range(stats: TensorStatistics, spec: QSpec, method: Method) -> KnownRange:
    """The range of a tensor of which values were seen, for a quantizer of `spec`."""
    low, high = method.range(stats.seen, spec)
    text = f"{method} over {stats.extremes.count} samples"
    if stats.wanted.rows is not None and low < float(stats.row_top) - FADES < high:
        low, text = float(stats.row_top) - FADES, f"{text}, without what Softmax ignores"
    return KnownRange.of(min(low, 0.0), max(high, 0.0), text)


__all__ = ["FADES", "observed_range"]
