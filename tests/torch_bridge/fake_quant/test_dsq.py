"""dx = dy t k (1 - tanh(k (f - 1/2))^2) / 2 inside, with t = 1/(1-a), k = ln(2/a - 1)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxq.errors import OptionError
from tests.torch_bridge.fake_quant.quantizers import Given, gradients, hard_values, make, spec

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.fake_quant import algorithm  # noqa: E402


@pytest.mark.parametrize("softness", [0.4, 0.1])
@pytest.mark.parametrize(("kind", "zero_point"), [("int4", 0), ("uint4", 5)])
def test_forward_and_backward(kind: str, zero_point: int, softness: float) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    of = spec(kind, symmetric=False)
    quantizer = make("dsq", of, 0.25, zero_point, softness=softness)
    row = quantizer.qparams("x")
    assert quantizer(x).numpy().tobytes() == row.fake(x.numpy()).tobytes()

    v = x.numpy().astype(np.float64) / 0.25 + zero_point
    inside = (v >= of.lo) & (v <= of.hi)
    t, k = 1 / (1 - softness), math.log(2 / softness - 1)
    curve = np.tanh(k * (v - np.floor(v) - 0.5))
    want = np.where(inside, dy.numpy() * t * k * (1 - curve**2) / 2, 0)
    dx, parameters = gradients(quantizer, x, dy)
    assert np.allclose(dx, want, rtol=1e-4, atol=1e-6)
    assert np.array_equal(dx == 0, want == 0)
    assert parameters == {}


def test_the_curve_rounds_as_the_grid_does() -> None:
    # R(phi(v)) = R(v): the soft curve goes through the middle of every step.
    a = 0.4
    t, k = 1 / (1 - a), math.log(2 / a - 1)
    v = np.linspace(-5, 5, 1001)
    f = v - np.floor(v)
    phi = np.floor(v) + (1 + t * np.tanh(k * (f - 0.5))) / 2
    clear = np.abs(f - 0.5) > 1e-9
    assert np.array_equal(np.rint(phi[clear]), np.rint(v[clear]))


@pytest.mark.parametrize("softness", [0.0, 1.0, -1.0])
def test_impossible_softness_is_refused(softness: float) -> None:
    with pytest.raises(OptionError, match="softness"):
        algorithm("dsq")(spec(), Given(1.0), softness=softness)
