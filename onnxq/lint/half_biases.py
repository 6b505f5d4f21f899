"""Biases of float16 layers that onnxruntime turns into wrong codes.

Where input, weight and result of a layer are quantized and its bias is float, onnxruntime stores
the bias as codes before it runs the model or hands it to an execution provider:

    code = b / (sx * sw)        computed in the type of the model

float16 ends at 65504. Larger codes become infinite, and the bias that comes back is another one.
Runtimes that read the file themselves are not concerned.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.accumulator_bounds import input_quantizer
from onnxq.canonical.fake_quantize import is_fake_quantize, params_of
from onnxq.edit import describe
from onnxq.graph.constants import array
from onnxq.lint.rule import Finding, LintRule, Subject

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_ACTIVATIONS = ("Relu", "Clip")
_LARGEST = float(np.finfo(np.float16).max)


def _check(subject: Subject) -> Iterator[Finding]:
    known: dict[int, gs.Node | None] = {}
    for node in subject.canonical.nodes(*_LAYERS):
        code = _largest_code(node, known)
        if code is not None and code > _LARGEST:
            yield Finding(
                "warning",
                describe(node),
                HALF_BIASES.name,
                f"in onnxruntime and its execution providers its bias becomes codes up to "
                f"{code:.0f}, which are computed in float16 and end at {_LARGEST:.0f}: it computes "
                "with another bias there",
                "deploy the float32 model, or run it in onnxruntime without the optimizer "
                "'WeightBiasQuantization'",
            )


def _largest_code(node: gs.Node, known: dict[int, gs.Node | None]) -> float | None:
    """The largest code of a float16 bias; None without such a bias, or without quantizers."""
    bias = array(node.inputs[2]) if len(node.inputs) > 2 else None
    if bias is None or bias.dtype != np.float16:
        return None
    if not _is_quantized(node.outputs[0]):
        return None
    quantizers = [input_quantizer(tensor, known) for tensor in node.inputs[:2]]
    if any(each is None for each in quantizers):
        return None
    x, w = (params_of(each).scale.astype(np.float64).reshape(-1) for each in quantizers)
    if x.size != 1 or w.size not in (1, bias.size):
        return None  # it runs in float
    scales = x * w
    return float(np.abs(bias.astype(np.float64).reshape(-1) / scales).max())


def _is_quantized(tensor: gs.Tensor) -> bool:
    """Whether a quantizer reads it, at once or behind its activation."""
    return any(
        is_fake_quantize(node) or (node.op in _ACTIVATIONS and _is_quantized(node.outputs[0]))
        for node in tensor.outputs
    )


HALF_BIASES = LintRule(
    "half-biases", "float16 biases that onnxruntime turns into wrong codes", _check
)
