"""int32 biases: scale = input scale * weight scale, never clipped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.graph import Model, from_proto
from onnxq.quant.qparams import Role
from passes.quantize_bias import QuantizeBias
from passes.read_qdq import ReadQdq
from tests.models.build import apply, parse, quantize, reasons, weight
from tests.models.zoo import ZOO


def gemm(bias: str = "{1, -2}", attributes: str = "", shape: str = "[2]") -> Model:
    return parse(
        f"""g (float[1,3] x) => (float[1,2] y)
        <float[3,2] w = {{1,2,3,4,5,6}}, float{shape} b = {bias}> {{
            y = Gemm{attributes}(x, w, b)
        }}"""
    )


def test_per_channel_scale_is_the_product() -> None:
    model = quantize(gemm(), "x", scale=np.float32(0.3))
    weight(model, "w", scale=np.float32([0.7, 0.9]), axis=1)
    made, trace = apply(model, QuantizeBias())
    (row,) = made.qparams
    assert (row.tensor, row.role, row.qtype.name, row.axis) == ("b", Role.BIAS, "int32", 0)
    np.testing.assert_array_equal(
        row.scale, (np.float64(np.float32(0.3)) * np.float32([0.7, 0.9])).astype(np.float32)
    )
    assert len(trace.rewrites) == 1


def test_one_element_bias_per_tensor() -> None:
    model = parse(
        """g (float[1,3] x) => (float[1,1] y) <float[3,1] w = {1,2,3}, float[1] b = {5}> {
            y = Gemm(x, w, b)
        }"""
    )
    weight(quantize(model, "x"), "w")
    (row,) = apply(model, QuantizeBias())[0].qparams
    assert (row.scale.shape, row.axis) == ((), None)


def test_overflow_keeps_the_bias_float_with_the_reason() -> None:
    model = quantize(gemm("{1e6, 0}"), "x", scale=np.float32(1e-3))
    weight(model, "w", scale=np.float32(1e-3))
    made, trace = apply(model, QuantizeBias())
    assert not len(made.qparams)
    assert "which exceeds int32" in reasons(trace)


@pytest.mark.parametrize("axis", [None, 1])
def test_wide_layers_take_a_coarser_step_where_asked_to(axis: int | None) -> None:
    scale = np.float32(1e-5) if axis is None else np.float32([1e-5, 1e-3])
    model = quantize(gemm("{3, -0.7}"), "x", qtype="int16", scale=np.float32(1e-5))
    weight(model, "w", scale=scale, axis=axis)
    made, _ = apply(model, QuantizeBias(coarser=True))
    (row,) = made.qparams
    steps = (np.float64(np.float32(1e-5)) * scale.astype(np.float64)).astype(np.float32)
    factor = row.scale / steps
    # 3e10 steps are 13.97 times 2^31; those of the other channel fit where it has its own.
    assert factor.tolist() == (16.0 if axis is None else [16.0, 1.0])
    values = np.float32([3, -0.7])
    assert np.abs(row.fake(values) - values).max() <= 2.0**-23 * 3
    assert apply(made, QuantizeBias(coarser=True))[1].rewrites == []


@given(st.floats(2.0**-60, 2.0**60, width=32), st.floats(2.0**-40, 1.0, width=32))
def test_a_coarser_step_always_fits(bias: float, scale: float) -> None:
    model = quantize(gemm(f"{{{bias!r}, -{bias!r}}}"), "x", qtype="int16", scale=np.float32(scale))
    weight(model, "w", scale=np.float32(0.25))
    (row,) = apply(model, QuantizeBias(coarser=True))[0].qparams
    assert abs(bias) / float(row.scale) <= 2**31 - 1
    factor = float(row.scale) / (scale / 4)
    assert factor >= 1
    assert np.frexp(factor)[0] == 0.5
    assert factor == 1 or abs(bias) / float(row.scale) > 2**29


def test_layers_of_eight_bits_keep_their_step() -> None:
    model = quantize(gemm("{1e6, 0}"), "x", scale=np.float32(1e-3))
    weight(model, "w", scale=np.float32(1e-3))
    made, trace = apply(model, QuantizeBias(coarser=True))
    assert not len(made.qparams)
    assert "which exceeds int32" in reasons(trace)


def test_underflow_keeps_the_bias_float_with_the_reason() -> None:
    model = quantize(gemm(), "x", scale=np.float32(1e-25))
    weight(model, "w", scale=np.float32(1e-25))
    made, trace = apply(model, QuantizeBias())
    assert not len(made.qparams)
    assert "underflows" in reasons(trace)


@pytest.mark.parametrize(
    ("model", "fields", "reason"),
    [
        (lambda: gemm(attributes="<alpha=2.0>"), {}, "alpha or beta"),
        (lambda: gemm(shape="[1,2]"), {}, "shape"),
        (gemm, {"axis": 0, "scale": np.float32([1, 2, 3])}, "are not along"),
    ],
)
def test_reasons(model: object, fields: dict[str, object], reason: str) -> None:
    made = quantize(model(), "x")  # type: ignore[operator]
    weight(made, "w", **fields)
    made, trace = apply(made, QuantizeBias())
    assert not len(made.qparams)
    assert reason in reasons(trace)


def test_float_input_is_a_reason() -> None:
    model = weight(gemm(), "w")
    assert "input is not quantized" in reasons(apply(model, QuantizeBias())[1])


def test_shared_bias_gets_a_row_per_layer() -> None:
    model = parse(
        """g (float[1,2] x) => (float[1,2] y, float[1,2] z)
        <float[2,2] v = {1,2,3,4}, float[2,2] w = {4,3,2,1}, float[2] b = {1, 2}> {
            y = Gemm(x, v, b)
            z = Gemm(x, w, b)
        }"""
    )
    quantize(model, "x")
    weight(model, "v", scale=np.float32(0.5))
    weight(model, "w", scale=np.float32(0.25))
    made, _ = apply(model, QuantizeBias())
    assert {r.readers[0].node: float(r.scale) for r in made.qparams} == {
        "y": pytest.approx(0.05),
        "z": pytest.approx(0.025),
    }


def test_rows_read_from_a_file_are_kept() -> None:
    read, _ = apply(from_proto(ZOO["qdq_uint8_stored_int32_bias"]()), ReadQdq())
    made, trace = apply(read, QuantizeBias())
    assert trace.rewrites == []
    assert {r.tensor for r in made.qparams} == {r.tensor for r in read.qparams}


@pytest.mark.parametrize("place", ["x", "w"])
def test_sums_of_float8_have_no_int32_bias(place: str) -> None:
    model = gemm()
    kinds = {"x": "int8", "w": "int8", place: "float8e4m3fn"}
    quantize(model, "x", qtype=kinds["x"])
    weight(model, "w", qtype=kinds["w"])
    made, trace = apply(model, QuantizeBias())
    assert not made.qparams.of(Role.BIAS)
    assert "float8e4m3fn codes, whose sums are floats" in reasons(trace)
