"""As LSQ, and db = g Σ dy (0 inside, -s outside) for the offset b with z = clamp(R(b))."""

from __future__ import annotations

import numpy as np
import pytest

from tests.torch_bridge.fake_quant.quantizers import close, gradients, hard_values, make, spec

torch = pytest.importorskip("torch", reason="training needs torch")


@pytest.mark.parametrize(("offset", "zero_point"), [(4.6, 5), (4.5, 4), (-0.4, 0), (99.0, 15)])
def test_forward_and_backward(offset: float, zero_point: int) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    quantizer = make("lsq-plus", spec("uint4", symmetric=False), 0.25, 7)
    assert quantizer.offset == 7
    with torch.no_grad():
        quantizer.offset.fill_(offset)
    row = quantizer.qparams("x")
    assert row.zero_point == zero_point
    assert quantizer(x).detach().numpy().tobytes() == row.fake(x.numpy()).tobytes()

    v = x.numpy().astype(np.float64) / 0.25
    low, high = -zero_point, 15 - zero_point
    inside = (v > low) & (v < high)
    g = (400 * 15) ** -0.5
    steps = g * dy.numpy() * np.where(inside, np.rint(v) - v, np.where(v <= low, low, high))
    shifts = g * dy.numpy() * np.where(inside, 0, -0.25)
    dx, parameters = gradients(quantizer, x, dy)
    assert np.array_equal(dx, np.where(inside, dy.numpy(), 0))
    assert close(parameters["scale"], steps.sum(), steps)
    assert close(parameters["offset"], shifts.sum(), shifts)


def test_a_symmetric_one_is_lsq() -> None:
    x, dy = hard_values(0.25), torch.randn(400)
    plus, plain = (make(name, spec("int4"), 0.25) for name in ("lsq-plus", "lsq"))
    assert torch.equal(plus(x), plain(x))
    (dx, grads), (want_dx, want) = (gradients(q, x, dy) for q in (plus, plain))
    assert np.array_equal(dx, want_dx)
    assert grads == want
