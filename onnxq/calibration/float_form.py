"""A float model in the form that quantizers are placed in.

Constants are constants, batch normalisations and affine chains are folded into their layers, and
tensors have one name each. What it computes is the same.
"""

from __future__ import annotations

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
        first = f"of '{row_of(quantizers[0]).tensor}'" if quantizers else describe(left[0])
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


__all__ = ["float_form"]
