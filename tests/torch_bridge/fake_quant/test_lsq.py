"""ds = g Σ dy (R(x/s) - x/s inside, L below, H above), g = 1/sqrt(n hi), n of one sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.torch_bridge.fake_quant.quantizers import close, gradients, hard_values, make, spec

torch = pytest.importorskip("torch", reason="training needs torch")


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(
    ("kind", "zero_point", "axis"), [("int4", 0, None), ("uint4", 5, None), ("int4", 0, 0)]
)
@pytest.mark.parametrize("weight", [True, False])
def test_forward_and_backward(
    kind: str, zero_point: int, axis: int | None, scaled: bool, weight: bool
) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    start: Any = 0.25 if axis is None else torch.linspace(0.1, 0.5, 10)
    of = spec(kind, symmetric=False, axis=axis, parameter=weight)
    quantizer = make("lsq", of, start, zero_point, scale_gradient=scaled)
    row = quantizer.qparams("x")
    assert quantizer(x).detach().numpy().tobytes() == row.fake(x.numpy()).tobytes()

    v = (x.numpy() / row.broadcast((10, 40))[0]).astype(np.float64)
    low, high = of.lo - zero_point, of.hi - zero_point
    inside = (v > low) & (v < high)
    assert 0.2 < inside.mean() < 0.8
    terms = dy.numpy() * np.where(inside, np.rint(v) - v, np.where(v <= low, low, high))
    count = (400 if axis is None else 40) // (1 if weight else 10)  # of one sample
    g = (count * of.hi) ** -0.5 if scaled else 1.0
    want = g * (terms.sum() if axis is None else terms.sum(1))
    dx, parameters = gradients(quantizer, x, dy)
    assert np.array_equal(dx, np.where(inside, dy.numpy(), 0))
    assert close(parameters["scale"], want, g * terms)


def test_a_scale_that_crosses_zero_comes_back() -> None:
    quantizer = make("lsq", spec("int4"), 0.25)
    with torch.no_grad():
        quantizer.scale.fill_(-0.5)
    assert torch.equal(quantizer(torch.tensor([0.6])), torch.tensor([0.5]))
    with torch.no_grad():
        quantizer.scale.fill_(0.0)
    assert torch.isfinite(quantizer(torch.randn(5))).all()
    assert quantizer.qparams("x").scale > 0
    with torch.no_grad():
        quantizer.scale.fill_(-0.5)
    assert quantizer.eval().scale == 0.5


def test_one_quantizer_may_serve_two_tensors() -> None:
    quantizer = make("lsq", spec("int4"), 0.25)
    x = torch.randn(5, requires_grad=True)
    (quantizer(x) * quantizer(2 * x)).sum().backward()
    assert torch.isfinite(quantizer.scale.grad)


def test_gradients_accumulated_over_parts_are_those_of_the_batch() -> None:
    """Of a mean over samples: each part counts by its share of them."""
    x, dy = hard_values(0.25, 12, 40), torch.randn(12, 40)
    grads = []
    for size in (12, 4, 1):
        quantizer = make("lsq", spec("uint4", symmetric=False), 0.25, 5)
        for part, given in zip(x.split(size), dy.split(size), strict=True):
            (quantizer(part) * given).sum().div(12).backward()
        grads.append(quantizer.scale.grad.item())
    assert grads[0] != 0
    np.testing.assert_allclose(grads, grads[0], rtol=1e-5)
