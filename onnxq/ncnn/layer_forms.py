"""The forms of layers that the writer makes: parameters by number, and numbers of blobs.

What ncnn knows besides would change what a layer computes, so it is refused instead of passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from onnxq.canonical.fake_quantize import is_fake_quantize
from onnxq.graph import Model
from onnxq.ncnn.program import Layer
from onnxq.pipeline import Pipeline
from passes.infer_shapes import InferShapes


class Form(NamedTuple):
    """What a layer may have: parameters, and how many blobs it reads and makes."""

    params: frozenset[int]
    bottoms: tuple[int, int] = (1, 1)
    tops: tuple[int, int] = (1, 1)
    flags: tuple[int, ...] = ()
    """Parameters that are 0 or 1."""
    int8: int = 0
    """What parameter 8 is where the layer has int8 weights; ncnn orders scales by it."""


_MANY = 1 << 16
_WINDOW = {0, 1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}
FORMS = {
    "Input": Form(frozenset({0, 1, 2, 11}), (0, 0)),
    "Convolution": Form(frozenset({*_WINDOW, 8}), flags=(5,), int8=2),
    "ConvolutionDepthWise": Form(frozenset({*_WINDOW, 7, 8}), flags=(5,), int8=1),
    "Deconvolution": Form(frozenset({*_WINDOW, 18, 19}), flags=(5,)),
    "DeconvolutionDepthWise": Form(frozenset({*_WINDOW, 7, 18, 19}), flags=(5,)),
    "InnerProduct": Form(frozenset({0, 1, 2, 8}), flags=(1,), int8=2),
    "Split": Form(frozenset(), tops=(1, _MANY)),
    "Quantize": Form(frozenset({0})),
    "Cast": Form(frozenset({0, 1})),
    "BinaryOp": Form(frozenset({0, 1, 2}), (1, 2), flags=(1,)),
    "UnaryOp": Form(frozenset({0})),
    "MemoryData": Form(frozenset({0, 1, 2, 11}), (0, 0)),
    "Reshape": Form(frozenset({0, 1, 2, 11})),
    "Slice": Form(frozenset({0, 1}), tops=(2, _MANY)),
    "Crop": Form(frozenset({9, 10, 11})),
    "Padding": Form(frozenset({0, 1, 2, 3, 4, 5, 7, 8})),
    "PixelShuffle": Form(frozenset({0, 1}), flags=(1,)),
    "Reduction": Form(frozenset({0, 1, 3, 4, 5}), flags=(1, 4, 5)),
    "BatchNorm": Form(frozenset({0, 1})),
    "InstanceNorm": Form(frozenset({0, 1, 2}), flags=(2,)),
    "Pooling": Form(frozenset({*_WINDOW} - {16}), flags=(0, 4, 5, 6)),
    "Permute": Form(frozenset({0})),
    "Clip": Form(frozenset({0, 1})),
    "LayerNorm": Form(frozenset({0, 1, 2}), flags=(2,)),
    "PReLU": Form(frozenset({0})),
    "Interp": Form(frozenset({0, 1, 2, 3, 4, 6}), flags=(6,)),
    "ELU": Form(frozenset({0})),
    "GELU": Form(frozenset({0}), flags=(0,)),
    "Erf": Form(frozenset()),
    "Mish": Form(frozenset()),
    "ReLU": Form(frozenset({0})),
    "HardSwish": Form(frozenset({0, 1})),
    "HardSigmoid": Form(frozenset({0, 1})),
    "Sigmoid": Form(frozenset()),
    "TanH": Form(frozenset()),
    "MatMul": Form(frozenset(), (2, 2)),
    "Concat": Form(frozenset({0}), (1, _MANY)),
    "Softmax": Form(frozenset({0, 1}), flags=(1,)),
}
"""By type of layer."""


def check_form(layer: Layer) -> None:
    """Refuse parameters that the writer never writes, and other numbers of blobs."""
    form = FORMS[layer.type]
    for key in layer.params:
        if key not in form.params:
            raise layer.error(f"parameter {key} is not read")
    for key in form.flags:
        if layer.integer(key, 0) not in (0, 1):
            raise layer.error(f"parameter {key} is {layer.integer(key)}, not 0 or 1")
    if form.int8 and layer.integer(8, 0) not in (0, form.int8):
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
    """Refuse an Interp whose factors give other sizes than it says: ncnn goes by the sizes."""
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
                raise layer.error(f"its factors make of {before} positions others than {after}")
