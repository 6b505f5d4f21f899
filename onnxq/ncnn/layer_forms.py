"""The forms of layers that the writer makes: parameters by number, and numbers of blobs.

Other parameters of ncnn would change the result of a layer, so they are rejected, not ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from onnxq.canonical.fake_quantize import is_fake_quantize
from onnxq.graph import Model
from onnxq.ncnn.program import Layer
from onnxq.pipeline import Pipeline
from passes.infer_shapes import InferShapes


class Form(NamedTuple):
    """The parameters that a layer may have, and the fewest and most blobs at both ends."""

    params: AbstractSet[int]
    bottoms: tuple[int, int] = (1, 1)
    tops: tuple[int, int] = (1, 1)
    flags: tuple[int, ...] = ()
    """Parameters that are 0 or 1."""
    int8: int = 0
    """The value of parameter 8 if the weights are int8; ncnn orders scales by it."""


def check_form(layer: Layer, form: Form) -> None:
    """Reject parameters that the writer never writes, and other numbers of blobs."""
    for key in layer.params:
        if key not in form.params:
            raise layer.error(f"parameter {key} is not supported")
    for key in form.flags:
        if layer.integer(key, 0) not in (0, 1):
            raise layer.error(f"parameter {key} is {layer.integer(key)}, not 0 or 1")
    if layer.integer(8, 0) not in (0, form.int8):
        raise layer.error(f"parameter 8 is {layer.integer(8)}, not {form.int8}")
    for blobs, (least, most), verb in (
        (layer.bottoms, form.bottoms, "reads"),
        (layer.tops, form.tops, "makes"),
    ):
        if not least <= len(blobs) <= most:
            raise layer.error(f"it {verb} {len(blobs)} blobs")
    if layer.type == "BinaryOp" and (len(layer.bottoms) == 1) != bool(layer.integer(1, 0)):
        raise layer.error(f"it reads {len(layer.bottoms)} blobs, parameter 1 says otherwise")
    if layer.type == "BinaryOp" and len(layer.bottoms) == 2 and 2 in layer.params:
        raise layer.error("it reads 2 blobs and has a constant as well")
    if layer.type == "Pooling" and layer.integer(4, 0) and not {0, 4} >= layer.params.keys():
        raise layer.error("it pools all positions and has a window as well")


def check_sizes(model: Model, scaled: Mapping[str, Layer]) -> None:
    """Reject an Interp whose factors and sizes contradict each other: ncnn uses the sizes."""
    if not scaled:
        return
    shaped = Pipeline(InferShapes()).run(model).model
    for node in shaped.nodes("Resize"):
        layer, source = scaled[node.outputs[0].name], node.inputs[0]
        while source.inputs and is_fake_quantize(source.inputs[0]):
            source = source.inputs[0].inputs[0]
        for axis, (factor, size) in enumerate(((1, 3), (2, 4)), 2):
            before = source.shape[axis] if source.shape and len(source.shape) == 4 else None
            after = layer.integer(size, 0)
            if not isinstance(before, int) or round(before * layer.number(factor, 1.0)) != after:
                raise layer.error(f"its factors do not turn {before} positions into {after}")
