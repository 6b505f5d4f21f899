"""Integer kernels round float biases: as far as is known from the scales, and no farther."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxq.proof.bias_rounding import bias_rounding
from onnxq.running.sessions import deployed, open_model, reference

SUMS = 0.2 * 0.5
"""The step of the sums: sx sw of the coarser channel."""
STEP = 0.125


def layer(bias: str = "float[2] b", *, codes: str = "", read: str = "b") -> onnx.ModelProto:
    """A convolution of coarse codes; its sums have a step not much finer than its result's."""
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,1,6,6] x) => (uint8[1,2,4,4] q)
    <float sx = {{0.2}}, uint8 zx = {{128}}, 
     int8[2,1,3,3] w = {{1,-1,0,2,1,0,1,-2,1, 1,0,1,-1,2,1,0,1,1}},
     float[2] sw = {{0.5, 0.25}}, int8[2] zw = {{0, 0}}, {bias} = {{3, -2}},
     float[2] sb = {{0.1, 0.05}},
     int32[2] zb = {{0, 0}}, float sy = {{{STEP}}}, uint8 zy = {{0}}>
    {{
      cx = QuantizeLinear (x, sx, zx)
      fx = DequantizeLinear (cx, sx, zx)
      fw = DequantizeLinear <axis=0> (w, sw, zw)
      {codes}
      y = Conv <kernel_shape=[3,3]> (fx, fw, {read})
      r = Relu (y)
      q = QuantizeLinear (r, sy, zy)
    }}""")  # fmt: skip


def test_it_is_half_a_step_of_the_coarsest_sums() -> None:
    assert bias_rounding(open_model(layer())) == {"q": pytest.approx(SUMS / STEP / 2)}


def test_a_bias_of_codes_is_not_rounded_again() -> None:
    stored = layer("int32[2] b", codes="fb = DequantizeLinear <axis=0> (b, sb, zb)", read="fb")
    assert bias_rounding(open_model(stored)) == {}


def test_a_kernel_is_off_by_no_more() -> None:
    """Biases halfway between two sums are as far off as can be."""
    rng = np.random.default_rng(0)
    model = layer()
    (known,) = bias_rounding(open_model(model)).values()
    (bias,) = [t for t in model.graph.initializer if t.name == "b"]
    most = 0.0
    for parts in (0.25, 0.49, 0.5):
        value = np.array([3 + parts, -2 + parts], np.float32) * [0.1, 0.05]
        bias.CopyFrom(onnx.numpy_helper.from_array(value.astype(np.float32), "b"))
        exact = onnx.ModelProto()
        exact.CopyFrom(model)
        exact.graph.output.append(onnx.helper.make_tensor_value_info("r", 1, [1, 2, 4, 4]))
        for _ in range(20):
            feed = {"x": rng.normal(size=(1, 1, 6, 6)).astype(np.float32)}
            codes = deployed(model).run(feed)["q"].astype(np.float64)
            steps = np.clip(reference(exact).run(feed)["r"] / STEP, 0, 255)
            most = max(most, float(np.abs(codes - steps).max()) - 0.5)
    assert most <= known + 1e-4
    assert most > 0.5 * known
