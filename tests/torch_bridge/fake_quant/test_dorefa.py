"""t = tanh(w) / max|tanh(w)|, m = max|w|, y = m fixed(t); chain rule through m t."""

from __future__ import annotations

import numpy as np
import pytest

from tests.torch_bridge.fake_quant.quantizers import gradients, hard_values, make, spec

torch = pytest.importorskip("torch", reason="training needs torch")


@pytest.mark.parametrize("scale", [1 / 7, 0.05])
def test_forward_and_backward(scale: float) -> None:
    w = hard_values(0.05, 10, 40)
    dy = torch.randn(10, 40)
    quantizer = make("dorefa", spec("int4"), scale)
    squeezed = np.tanh(w.numpy().astype(np.float64))
    top = np.unravel_index(np.abs(squeezed).argmax(), squeezed.shape)
    peak = np.abs(squeezed[top])
    t = squeezed / peak
    v = t / np.float32(scale)
    safe = np.abs(v - np.floor(v) - 0.5) > 1e-5  # float32 may round the others either way
    reach = np.abs(w.numpy()).max().astype(np.float64)
    want = np.clip(np.rint(v), -8, 7) * np.float32(scale) * reach
    got = quantizer(w).detach().numpy()
    assert np.allclose(got[safe], want[safe], rtol=1e-6, atol=0)
    assert safe.mean() > 0.95

    # dt_i/dw_j = (1 - tanh(w_j)^2) / peak * (i == j), and through the peak at its own place
    # -t_i * sign(tanh(w_top)) * (1 - tanh(w_top)^2) / peak.
    passed = np.where((np.rint(v) >= -8) & (np.rint(v) <= 7), dy.numpy(), 0).astype(np.float64)
    slope = (1 - squeezed**2) / peak
    # m is the same weight: it adds t_i * sign(w_top).
    want_dw = reach * passed * slope
    sign = np.sign(squeezed[top])
    want_dw[top] += (passed * t).sum() * sign * (1 - reach * slope[top])
    dw, parameters = gradients(quantizer, w, dy)
    safe[top] = True
    assert np.allclose(dw[safe], want_dw[safe], rtol=1e-4, atol=1e-5)
    assert parameters == {}


def test_the_observer_sees_the_squeezed_weight() -> None:
    quantizer = make("dorefa", spec("int4"), 0.1)
    quantizer.observing = True
    quantizer(torch.randn(50) * 9)
    assert quantizer.observer.seen[0].abs().max() == 1


def test_a_weight_of_zeros_stays_one() -> None:
    w = torch.zeros(4, requires_grad=True)
    y = make("dorefa", spec("int4"), 0.1)(w)
    y.sum().backward()
    assert torch.equal(y, torch.zeros(4))
    assert (w.grad.abs() <= 4).all()


def test_the_grid_follows_the_largest_weight() -> None:
    """Scaled by a number, small weights keep their codes: the result has the size of the weight."""
    w = torch.randn(50) * 1e-3
    quantizer = make("dorefa", spec("int4"), 1 / 7)
    y = quantizer(w)
    assert quantizer.qparams("w").scale == pytest.approx(float(w.abs().max()) / 7, rel=1e-6)
    torch.testing.assert_close(quantizer(8 * w), 8 * y, rtol=1e-4, atol=0)
