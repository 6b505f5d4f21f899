"""`onnxq::Upsample(x, scales)`: what ONNX called Upsample up to opset 9, for targets that know it.

Output i of a dimension with scale s reads position i / s of the input: mode 'nearest' takes the
element at floor(i / s), mode 'linear' interpolates. That is Resize with asymmetric coordinates.
ONNX dropped the operator with opset 10. As a model-local function it is valid in newer models and
runs in a stock onnxruntime, and a converter that goes by operator names finds it.
"""

from __future__ import annotations

import functools

import onnx_graphsurgeon as gs
from onnx import AttributeProto, FunctionProto, helper

from onnxq.canonical.fake_quantize import DOMAIN

OP = "Upsample"
UPSAMPLE = f"{DOMAIN}::{OP}"

_MIN_OPSET = 13  # Resize without a region of interest


@functools.cache
def function(opset: int) -> FunctionProto:
    """The body for models of `opset` (onnxruntime wants both to agree)."""
    resize = helper.make_node(
        "Resize",
        ["x", "", "scales"],
        ["y"],
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    resize.attribute.append(
        AttributeProto(name="mode", ref_attr_name="mode", type=AttributeProto.STRING)
    )
    made = helper.make_function(
        DOMAIN,
        OP,
        ["x", "scales"],
        ["y"],
        [resize],
        [helper.make_opsetid("", opset)],
        attributes=["mode"],
    )
    made.doc_string = "Upsample as of opset 9; see onnxq.canonical.upsample."
    return made


def needed_opset(nodes: list[gs.Node]) -> int:
    """The lowest opset whose operators the function body needs."""
    return _MIN_OPSET
