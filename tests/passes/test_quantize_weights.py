"""Weights quantized from their own values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from onnxq.quant.qparams import Role
from passes.quantize_weights import QuantizeWeights
from tests.models.build import apply, parse, reasons, run, weight
from tests.onnxq.formats.tables import SHAPES, model


def quantizers(found: Model) -> dict[str, object]:
    return {n.inputs[0].name: params_of(n) for n in found.nodes(FAKE_QUANTIZE)}


def test_every_layer_gets_one_scale_per_output_channel() -> None:
    source = model()
    made, trace = apply(source, QuantizeWeights())
    found = quantizers(made)
    assert set(found) == set(SHAPES)
    assert len(trace.rewrites) == len(SHAPES)
    for name, (shape, channel, _) in SHAPES.items():
        params = found[name]
        (value,) = (
            t.values for n in source.nodes() for t in n.inputs if t.name == name
        )  # fmt: skip
        rest = tuple(a for a in range(len(shape)) if a != channel)
        want = (np.abs(value.astype(np.float64)).max(axis=rest) / 127).astype(np.float32)
        assert np.array_equal(params.scale, want)
        assert (params.axis, params.lo, params.hi, params.role) == (channel, -127, 127, Role.WEIGHT)
        assert not params.zero_point.any()
        codes = params.quantize(value)
        assert np.abs(codes).max(axis=rest).tolist() == [127] * shape[channel]
        assert np.abs(params.fake(value) - value).max() <= params.scale.max() * 0.5001


def test_a_second_run_does_nothing() -> None:
    made, _ = apply(model(), QuantizeWeights())
    again, trace = apply(made, QuantizeWeights())
    assert not trace.rewrites
    assert len(again.nodes(FAKE_QUANTIZE)) == len(SHAPES)


MATMUL = """g (float[1,2] x) => (float[1,3] y) <float[2,3] w = {W}> { y = MatMul(x, w) }"""


def test_a_weight_with_a_quantizer_keeps_it() -> None:
    source = weight(parse(MATMUL.replace("W", "1,2,3,4,5,6")), "w")
    made, trace = apply(source, QuantizeWeights())
    assert not trace.rewrites
    assert len(made.nodes(FAKE_QUANTIZE)) == 1


def test_a_channel_of_zeros_stays_zero() -> None:
    made, _ = apply(parse(MATMUL.replace("W", "1,0,3,-4,0,6")), QuantizeWeights())
    assert quantizers(made)["w"].scale[1] == 1
    (y,) = run(made, np.array([[1.0, 2.0]], np.float32))
    assert y[0, 1] == 0


@given(st.lists(st.floats(-100, 100, width=32), min_size=6, max_size=6))
def test_no_value_is_cut_and_none_moves_more_than_half_a_step(values: list[float]) -> None:
    text = ", ".join(f"{v:.9g}" for v in values)
    made, _ = apply(parse(MATMUL.replace("W", text)), QuantizeWeights())
    params = quantizers(made)["w"]
    value = np.array(values, np.float32).reshape(2, 3)
    error = np.abs(params.fake(value).astype(float) - value)
    assert np.all(error <= 0.5 * params.scale.astype(float) * (1 + 1e-5) + 1e-37)


def test_a_weight_used_both_ways_gets_a_quantizer_for_each() -> None:
    source = parse(
        """g (float[2,2] x) => (float[2,2] y) <float[2,2] w = {1,2,3,4}> {
            a = Gemm<transB=1>(x, w)
            b = Gemm(a, w)
            c = Gemm(b, w)
            y = Add(c, w)
        }"""
    )
    made, trace = apply(source, QuantizeWeights())
    assert len(trace.rewrites) == 2
    axes = sorted(params_of(n).axis for n in made.nodes(FAKE_QUANTIZE))
    assert axes == [0, 1]
    (add,) = made.nodes("Add")
    assert add.inputs[1].name == "w", "what is not a weight is left alone"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("<double[2,3] w = {1,2,3,4,5,6}>", "its weight is float64"),
        ("<float[2,3] w = {1,2,nan,4,5,6}>", "not finite"),
    ],
)
def test_what_has_no_range_is_left_with_the_reason(body: str, why: str) -> None:
    kind = "double" if "double" in body else "float"
    source = parse(f"g ({kind}[1,2] x) => ({kind}[1,3] y) {body} {{ y = MatMul(x, w) }}")
    made, trace = apply(source, QuantizeWeights())
    assert not made.nodes(FAKE_QUANTIZE)
    assert why in reasons(trace)


def test_products_of_activations_are_none_of_its_business() -> None:
    source = parse("g (float[2,2] x) => (float[2,2] y) { y = MatMul(x, x) }")
    made, trace = apply(source, QuantizeWeights())
    assert not trace.rewrites
    assert not trace.skips
    assert not made.nodes(FAKE_QUANTIZE)
