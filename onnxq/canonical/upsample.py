"""`onnxq::Upsample(x, scales)`: ONNX's own Upsample of opset 9, for targets that know it.

Output i of a dimension with scale s reads position i / s of the input: mode 'nearest' takes the
element at floor(i / s), mode 'linear' interpolates. That is Resize with asymmetric coordinates.
ONNX dropped the operator with opset 10. As a model-local function it is valid in newer models and
runs in a stock onnxruntime, and converters that go by operator names find it.
"""

from __future__ import annotations

import functools

from onnx import FunctionProto

from onnxq.canonical.fake_quantize import DOMAIN, parsed

OP = "Upsample"
UPSAMPLE = f"{DOMAIN}::{OP}"

MIN_OPSET = 13  # Resize without a region of interest


@functools.cache
def function(opset: int) -> FunctionProto:
    """The body for models of `opset`."""
    text = f"""
    {OP} <mode> (x, scales) => (y) {{
        y = Resize <
            coordinate_transformation_mode = "asymmetric",
            nearest_mode = "floor",
            mode: string = @mode
        > (x, "", scales)
    }}"""
    return parsed(opset, text, "Upsample as of opset 9; see onnxq.canonical.upsample.")
