"""A float model in the form that quantizers are placed in.

Constants are constants, batch normalisations and affine chains are folded into their layers, and
tensors have one name each. What it computes is the same.
"""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.calibration.single_precision import in_single_precision
from onnxq.canonical.quantizers import QUANTIZERS, row_of
from onnxq.dialects.quantizing_operators import unreadable
from onnxq.edit import describe
from onnxq.errors import UnsupportedModelError
from onnxq.graph import Model
from onnxq.pass_ import Trace
from onnxq.pipeline import Pipeline
from onnxq.reading import canonical, readable_form
from passes.collect_qparams import make_names_unique
from passes.phases import CLEAN, FOLD


def float_form(model: Model, single: bool = False) -> tuple[Model, list[Trace]]:
    """The float model, ready for quantizers, and what was done to it; `model` is not changed.

    With `single`, a float16 model computes in float32.
    """
    found, traces = canonical(readable_form(model))
    quantizers = found.nodes(*QUANTIZERS)
    left = [node for node, _ in unreadable(found)]
    if quantizers or left:
        count = len(quantizers) or len(left)
        first = _named(quantizers[0], model) if quantizers else describe(left[0])
        raise UnsupportedModelError(
            f"the model is quantized already: {count} quantizer{'s' * (count != 1)}, the first is "
            f"{first}",
            fix="convert it for the target with 'onnxq convert --allow-requantize', or quantize "
            "the float model it was made from",
        )
    result = Pipeline(*CLEAN, *FOLD).run(found)
    widened = Trace("single-precision")
    if single and in_single_precision(result.model):
        widened.rewrote("the model", "float16 is computed in float32")
    trace = Trace("unique-names")
    make_names_unique(result.model, trace)
    return result.model, [*traces, *result.traces, widened, trace]


def _named(quantizer: gs.Node, source: Model) -> str:
    """A quantizer by the name of its tensor, or its own, if that is what the file has."""
    tensor = row_of(quantizer).tensor
    known = {t.name for node in source.nodes() for t in (*node.inputs, *node.outputs)}
    return f"of '{tensor}'" if tensor in known else f"'{quantizer.name or tensor}'"


__all__ = ["float_form"]
