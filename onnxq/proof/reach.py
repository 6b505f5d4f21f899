"""Whether the quantizers of a file reach as far as those of its source.

Inputs that saturate no quantizer do not show where its range ends: a zero point that is off by one,
in QuantizeLinear and DequantizeLinear alike, moves the ends and nothing else. So the ends are
compared as numbers. A range may be wider. It may be narrower only where it begins at 0, since a
quantizer of values that are never negative (after a Relu) needs no codes for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from onnxq.operators.traits import MOVES
from onnxq.proof.kernel_difference import KernelDiff
from onnxq.proof.quantizers import Quantizer, quantizers
from onnxq.running.sessions import OpenModel

_LIMIT = 0.5
"""Steps by which a range may end sooner."""


def shortened(source: OpenModel, file: OpenModel) -> Iterator[KernelDiff]:
    """The quantizers of `file` whose range ends before that of the same quantizer in `source`.

    A quantizer that the source does not have, of values that are quantized and only moved since,
    must reach as far as the one they come from.
    """
    originals = {value: each for each in quantizers(source) for value in each.values}
    own = quantizers(file)
    made = {value: each for each in own for value in each.values}
    makers = {name: node for node in file.proto.graph.node for name in node.output}
    for each in own:
        twins = [originals[value] for value in each.values if value in originals]
        if not twins:
            twins = [made[name] for name in [_origin(each.read, makers)] if name in made]
        for twin in twins:
            missing = _missing(twin, each)
            if missing > _LIMIT:
                yield KernelDiff(
                    each.values[0], each.op, each.node, "steps", missing, _LIMIT, 0.0, 0, ends=True
                )


def _origin(name: str, makers: Mapping[str, onnx.NodeProto]) -> str:
    """The tensor whose values this one has, moved."""
    while name in makers and makers[name].op_type in MOVES:
        name = makers[name].input[0]
    return name


def _missing(own: Quantizer, twin: Quantizer) -> float:
    """The largest part of the range of `own`, in its steps, that `twin` does not reach."""
    if own.step.scale.shape != twin.step.scale.shape:
        return 0.0
    (low, high), (other_low, other_high) = own.ends, twin.ends
    below = np.where(np.abs(other_low) < own.step.scale / 2, 0.0, other_low - low)
    return float(np.max(np.maximum(below, high - other_high) / own.step.scale))
