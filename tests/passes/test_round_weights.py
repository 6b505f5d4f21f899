from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.canonical.fake_quantize_log import logarithmic
from onnxq.graph import Model
from onnxq.graph.constants import array
from passes.round_weights import RoundWeights
from tests.checks.applied import apply_checked
from tests.models.build import log_quantize, parse, quantize, tensor, weight

W = np.array([[-90, -1.349, 0.05], [3, 12.7, 1e30]], np.float32)


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


def test_values_lie_on_the_grid() -> None:
    applied = apply_checked(weight(linear(), "w"), RoundWeights())
    want = np.float32([[-128, -13, 0], [30, 127, 127]]) * np.float32(0.1)
    np.testing.assert_array_equal(weights(applied.model), want)
    assert len(applied.trace.rewrites) == 1


def test_per_channel_zero_point() -> None:
    scale, zero_point = np.float32([0.5, 0.1]), np.array([3, -7])
    model = weight(linear(), "w", scale=scale, zero_point=zero_point, axis=0)
    params = params_of(model.nodes(FAKE_QUANTIZE)[0])
    applied = apply_checked(model, RoundWeights())
    np.testing.assert_array_equal(weights(applied.model), params.fake(W))


def test_float16_stays_float16() -> None:
    values = np.array([[0.26, 0.5, 1.9], [2.5, 60, 1]], np.float16)
    applied = apply_checked(weight(linear(values, 21), "w", scale=np.float16(0.1)), RoundWeights())
    assert weights(applied.model).dtype == np.float16
    assert len(applied.trace.rewrites) == 1


def test_float16_that_cannot_hold_a_16_bit_grid_is_declined() -> None:
    values = np.array([[0.26, 0.5, 1.9], [2.5, 60, 1]], np.float16)
    model = weight(linear(values, 21), "w", qtype="int16", scale=np.float16(7e-4), hi=31010)
    applied = apply_checked(model, RoundWeights())
    assert applied.reasons() == ["float16 cannot distinguish the int16 values of 'w'"]


def test_shared_constant_is_not_overwritten() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {0.13, 0.29}>
           { y = Add(x, w) z = Mul(x, w) }"""
    )
    weight(model, "w")
    model.nodes("Mul")[0].inputs[1] = tensor(model, "w")
    applied = apply_checked(model, RoundWeights())
    assert (
        array(applied.model.nodes("Mul")[0].inputs[1]).tolist()
        == W.dtype.type([0.13, 0.29]).tolist()
    )
    np.testing.assert_array_equal(weights(applied.model), np.float32([1, 3]) * np.float32(0.1))


def test_logarithmic_values_lie_on_the_grid() -> None:
    model = log_quantize(log_quantize(linear(), "w", 12.7), "x", 1.0)
    applied = apply_checked(model, RoundWeights())
    assert len(applied.trace.rewrites) == 1
    again = apply_checked(applied.model, RoundWeights())
    assert again.reasons() == ["'w' is on its grid"]
    found = array(tensor(applied.model, "w"))
    assert found is not None
    np.testing.assert_array_equal(found, logarithmic(W, 12.7))


@pytest.mark.parametrize("reach", [3e-6, 0.001, 0.7, 900.0])
def test_no_float16_leaves_its_logarithmic_value_when_rounded_again(reach: float) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    once = logarithmic(every[np.isfinite(every)], reach)
    assert once.dtype == np.float16
    np.testing.assert_array_equal(logarithmic(once, reach), once)


def test_weight_on_its_grid_and_activations_are_left_alone() -> None:
    model = weight(linear(np.float32([[1, 2, 3], [4, 5, 6]])), "w", scale=np.float32(0.5))
    applied = apply_checked(quantize(model, "x"), RoundWeights())
    assert applied.reasons() == ["'w' is on its grid"]


def test_float8_values_lie_on_the_grid() -> None:
    model = weight(linear(), "w", qtype="float8e4m3fn", scale=np.float32(0.1))
    params = params_of(model.nodes(FAKE_QUANTIZE)[0])
    applied = apply_checked(model, RoundWeights())
    np.testing.assert_array_equal(weights(applied.model), params.fake(W))
