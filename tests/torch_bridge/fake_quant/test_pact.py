"""da = Σ dy over x >= a (minus Σ dy over x <= -a if mirrored), db = Σ dy over x < b."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import OptionError
from tests.torch_bridge.fake_quant.quantizers import (
    Given,
    close,
    gradients,
    hard_values,
    make,
    spec,
)

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.fake_quant import algorithm  # noqa: E402


@pytest.mark.parametrize(
    ("kind", "symmetric", "zero_point"),
    [("int4", True, 0), ("uint4", True, 0), ("uint4", False, 5), ("uint4", False, 0)],
)
def test_forward_and_backward(kind: str, symmetric: bool, zero_point: int) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    of = spec(kind, symmetric=symmetric)
    quantizer = make("pact", of, 0.25, zero_point)
    row = quantizer.qparams("x")
    assert (row.scale, row.zero_point) == (0.25, zero_point)
    assert quantizer(x).detach().numpy().tobytes() == row.fake(x.numpy()).tobytes()

    upper = (of.hi - zero_point) * 0.25
    lower = -upper if kind == "int4" else (of.lo - zero_point) * 0.25
    values, given = x.numpy(), dy.numpy().astype(np.float64)
    over = values >= upper
    under = values <= lower if kind == "int4" else values < lower
    assert over.mean() > 0.05
    want_a = given[over].sum() - (given[under].sum() if kind == "int4" else 0)
    dx, parameters = gradients(quantizer, x, dy)
    assert np.array_equal(dx, np.where(over | under, 0, given))
    assert close(parameters["alpha"], want_a, given)
    if not symmetric:
        assert close(parameters["beta"], given[under].sum(), given)


def test_the_bound_trains_while_the_observer_is_off_and_moves_the_grid() -> None:
    quantizer = make("pact", spec("uint4", symmetric=False), 0.25, 0)
    optimizer = torch.optim.SGD(quantizer.parameters(), lr=0.01)
    x = torch.rand(500) * 10
    scales = []
    for _ in range(50):
        optimizer.zero_grad()
        ((quantizer(x) - x) ** 2).mean().backward()
        optimizer.step()
        scales.append(quantizer.qparams("x").scale.item())
    assert not quantizer.observing
    assert scales[-1] > scales[0] > 0.25


def test_bounds_stay_on_their_sides_of_zero() -> None:
    quantizer = make("pact", spec("uint4", symmetric=False), 0.25, 5)
    with torch.no_grad():
        quantizer.alpha.fill_(-3.0)
        quantizer.beta.fill_(2.0)
    row = quantizer.qparams("x")
    assert row.scale > 0
    assert 0 <= row.zero_point <= 15


def test_per_channel_is_refused() -> None:
    with pytest.raises(OptionError, match="'pact' cannot be"):
        algorithm("pact")(spec(axis=0), Given(1.0))
