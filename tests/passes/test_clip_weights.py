from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from onnxq.graph.constants import array
from passes.clip_weights import ClipWeights
from tests.checks.applied import apply_checked
from tests.models.build import parse, quantize, tensor, weight

W = np.array([[-90, -1.3, 0.04], [3, 12.7, 1e30]], np.float32)


def linear(values: np.ndarray = W, opset: int = 17) -> Model:
    kind = str(values.dtype).replace("32", "")
    model = parse(
        f"""g ({kind}[N,2] x) => ({kind}[N,3] y) <{kind}[2,3] w = {{0, 0, 0, 0, 0, 0}}>
            {{ y = MatMul(x, w) }}""",
        opset,
        10,
    )
    tensor(model, "w").values = values
    return model


def weights(model: Model) -> np.ndarray:
    found = array(model.nodes(FAKE_QUANTIZE)[0].inputs[0])
    assert found is not None
    return found


def test_values_beyond_the_range_take_its_ends() -> None:
    applied = apply_checked(weight(linear(), "w"), ClipWeights())
    low, high = np.float32(-128) * np.float32(0.1), np.float32(127) * np.float32(0.1)
    want = np.clip(W, low, high)
    np.testing.assert_array_equal(weights(applied.model), want)
    assert "2 of 6 values of 'w' clamped" in applied.trace.rewrites[0]
    assert applied.model.nodes(FAKE_QUANTIZE)[0].inputs[0].name == "w"  # side files name it


def test_per_channel_and_narrow_range() -> None:
    scale = np.float32([0.01, 0.1, 10])
    model = weight(linear(), "w", scale=scale, zero_point=np.zeros(3), axis=1, lo=-127)
    applied = apply_checked(model, ClipWeights())
    want = np.clip(W, -127 * scale, 127 * scale)
    np.testing.assert_array_equal(weights(applied.model), want)


def test_largest_value_gives_back_the_trained_scale() -> None:
    applied = apply_checked(weight(linear(), "w", lo=-127), ClipWeights())
    assert np.abs(weights(applied.model)).max() / np.float32(127) == np.float32(0.1)


def test_weight_shared_with_a_float_reader_is_not_touched() -> None:
    model = parse(
        """g (float[N,2] x) => (float[N,3] y, float[N,3] z)
           <float[2,3] w = {-90, 0, 0, 0, 0, 90}> { y = MatMul(x, w) z = MatMul(x, w) }"""
    )
    weight(model, "w")
    model.nodes("MatMul")[1].inputs[1] = tensor(model, "w")
    applied = apply_checked(model, ClipWeights())
    assert array(applied.model.nodes("MatMul")[1].inputs[1]).max() == 90
    assert weights(applied.model).max() < 13


def test_weight_within_its_range_is_left_alone() -> None:
    model = weight(linear(np.clip(W, -1, 1)), "w")
    applied = apply_checked(model, ClipWeights())
    assert not applied.trace.rewrites
    assert applied.reasons() == ["all values of 'w' are within its range"]


def test_activations_are_not_considered() -> None:
    applied = apply_checked(quantize(linear(), "x"), ClipWeights())
    assert not applied.trace.rewrites
    assert not applied.trace.skips


def test_float16_ends_are_rounded_outwards() -> None:
    """65504 values of uint16 lie closer together than float16 can tell: the end must still win."""
    values = np.array([[0, 0.5, 1.9], [2.5, 60, 1]], np.float16)
    scale = np.float16(3e-5)
    model = weight(linear(values, 21), "w", qtype="uint16", scale=scale)
    params = params_of(model.nodes(FAKE_QUANTIZE)[0])
    codes = params.quantize(values)
    applied = apply_checked(model, ClipWeights())
    assert weights(applied.model).dtype == np.float16
    np.testing.assert_array_equal(params.quantize(weights(applied.model)), codes)


def test_nan_and_infinity() -> None:
    values = np.array([[np.nan, np.inf, -np.inf], [0, 1, 2]], np.float32)
    model = weight(linear(values), "w")
    params = params_of(model.nodes(FAKE_QUANTIZE)[0])
    applied = apply_checked(model, ClipWeights())
    np.testing.assert_array_equal(params.quantize(weights(applied.model)), params.quantize(values))
    assert "2 of 6 values" in applied.trace.rewrites[0]


@pytest.mark.parametrize("scale", [1e-45, 1e-38, 1e37])
def test_extreme_scales(scale: float) -> None:
    model = weight(linear(), "w", scale=np.float32(scale))
    params = params_of(model.nodes(FAKE_QUANTIZE)[0])
    applied = apply_checked(model, ClipWeights())
    np.testing.assert_array_equal(params.quantize(weights(applied.model)), params.quantize(W))


@pytest.mark.parametrize("kind", ["float8e4m3fn", "float8e5m2fnuz"])
def test_float8_values_beyond_the_range_take_its_ends(kind: str) -> None:
    model = weight(linear(), "w", qtype=kind, scale=np.float32(0.0001))
    largest = np.float32(params_of(model.nodes(FAKE_QUANTIZE)[0]).hi) * np.float32(0.0001)
    applied = apply_checked(model, ClipWeights())
    np.testing.assert_array_equal(weights(applied.model), np.clip(W, -largest, largest))
