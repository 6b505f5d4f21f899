"""As LSQ, and db = g Σ dy (0 inside, 1 outside) for the offset b with z = clamp(R(-b/s))."""

from __future__ import annotations

import numpy as np
import pytest

from tests.torch_bridge.fake_quant.quantizers import close, gradients, hard_values, make, spec

torch = pytest.importorskip("torch", reason="training needs torch")


@pytest.mark.parametrize(("offset", "zero_point"), [(-1.15, 5), (-1.125, 4), (0.1, 0), (-24.0, 15)])
def test_forward_and_backward(offset: float, zero_point: int) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    quantizer = make("lsq-plus", spec("uint4", symmetric=False, parameter=True), 0.25, 7)
    assert quantizer.offset == -7 * 0.25
    with torch.no_grad():
        quantizer.offset.fill_(offset)
    row = quantizer.qparams("x")
    assert row.zero_point == zero_point
    assert quantizer(x).detach().numpy().tobytes() == row.fake(x.numpy()).tobytes()

    v = x.numpy().astype(np.float64) / 0.25
    low, high = -zero_point, 15 - zero_point
    inside = (v > low) & (v < high)
    g = (400 * 15) ** -0.5
    # Below and above lie z steps from the codes 0 and 15; -b/s is z before its rounding.
    left = -float(quantizer.offset.detach()) / 0.25 - zero_point
    outer = np.where(v <= low, 0, 15) + left
    steps = g * dy.numpy() * np.where(inside, np.rint(v) - v, outer)
    shifts = g * dy.numpy() * np.where(inside, 0, 1)
    dx, parameters = gradients(quantizer, x, dy)
    assert np.array_equal(dx, np.where(inside, dy.numpy(), 0))
    assert close(parameters["scale"], steps.sum(), 15 * steps)
    assert close(parameters["offset"], shifts.sum(), shifts)


def test_the_offset_learns_a_range_below_zero() -> None:
    """Data in -1..1 and a grid that starts at 0..3: a quarter of the codes is at the wrong end."""
    torch.manual_seed(0)
    x = torch.rand(16, 64) * 2 - 1
    quantizer = make("lsq-plus", spec("uint4", symmetric=False), 0.2, 0)
    optimiser = torch.optim.Adam(quantizer.parameters(), lr=1e-2)
    errors = []
    for _ in range(200):
        optimiser.zero_grad()
        error = (quantizer(x) - x).square().mean()
        error.backward()
        optimiser.step()
        errors.append(error.item())
    assert quantizer.qparams("x").zero_point >= 6
    assert errors[-1] < errors[0] / 50


def test_a_symmetric_one_is_lsq() -> None:
    x, dy = hard_values(0.25), torch.randn(400)
    plus, plain = (make(name, spec("int4"), 0.25) for name in ("lsq-plus", "lsq"))
    assert torch.equal(plus(x), plain(x))
    (dx, grads), (want_dx, want) = (gradients(q, x, dy) for q in (plus, plain))
    assert np.array_equal(dx, want_dx)
    assert grads == want
