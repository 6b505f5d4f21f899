"""y = (clamp(floor(x/s) + h(a) + z) - z) s, h(a) = clamp(1.2 sigmoid(a) - 0.1, 0, 1)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxq.errors import QParamsError
from tests.torch_bridge.exports import export
from tests.torch_bridge.fake_quant.quantizers import gradients, hard_values, make, spec

torch = pytest.importorskip("torch", reason="training needs torch")


def test_it_rounds_to_the_nearest_code_until_it_starts() -> None:
    x = hard_values(0.25)
    quantizer, plain = (make(name, spec("int4"), 0.25) for name in ("adaround", "fixed"))
    assert torch.equal(quantizer(x), plain(x))


def test_training_without_a_reconstruction_is_refused() -> None:
    """It would train as 'fixed' does, and under another name."""
    quantizer = make("adaround", spec("int4"), 0.25)
    w = torch.randn(50, requires_grad=True)
    with pytest.raises(QParamsError, match=r"'net\.act'.*by reconstruction and not in training"):
        quantizer(w)
    quantizer.eval()
    quantizer(w).sum().backward()
    with torch.no_grad():
        quantizer.train()(w)
    quantizer.start(w)
    quantizer(w).sum().backward()
    assert quantizer.rounding.grad.any()


@pytest.mark.parametrize(
    ("kind", "zero_point", "axis"), [("int4", 0, None), ("uint4", 5, None), ("int4", 0, 0)]
)
def test_forward_and_backward(kind: str, zero_point: int, axis: int | None) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    of = spec(kind, symmetric=False, axis=axis)
    scale = 0.25 if axis is None else torch.linspace(0.1, 0.5, 10)
    quantizer = make("adaround", of, scale, zero_point)
    quantizer.start(x)
    with torch.no_grad():
        quantizer.rounding.add_(torch.randn(10, 40))
    a = quantizer.rounding.detach().numpy().astype(np.float64)
    sigmoid = 1 / (1 + np.exp(-a))
    s, z = quantizer.qparams("w").broadcast((10, 40))
    floor = np.floor(x.numpy() / s)
    stretched = 1.2 * sigmoid - 0.1
    code = floor + np.clip(stretched, 0, 1) + z
    y = (np.clip(code, of.lo, of.hi) - z) * s
    assert np.allclose(quantizer(x).detach().numpy(), y, rtol=1e-5, atol=1e-6)

    free = (stretched > 0) & (stretched < 1) & (code >= of.lo) & (code <= of.hi)
    want = np.where(free, dy.numpy() * s * 1.2 * sigmoid * (1 - sigmoid), 0)
    edge = np.isclose(code, of.lo, atol=1e-5) | np.isclose(code, of.hi, atol=1e-5)
    dx, parameters = gradients(quantizer, x, dy)
    assert dx is None
    assert np.allclose(parameters["rounding"][~edge], want[~edge], rtol=1e-4, atol=1e-6)

    quantizer.harden()
    hard = (np.clip(floor + (a >= 0) + z, of.lo, of.hi) - z).astype(np.float32) * s
    assert np.array_equal(quantizer(x).detach().numpy(), hard)


def test_starting_rounds_nothing_yet() -> None:
    quantizer = make("adaround", spec("int8"), 0.25)
    x = torch.randn(200)
    quantizer.start(x)
    torch.testing.assert_close(quantizer(x), x, rtol=0, atol=1e-6)
    assert quantizer.penalty(2.0) > 0
    quantizer.harden()
    assert quantizer.penalty(2.0) == 0
    assert ((quantizer(x) - x).abs() <= 0.25 / 2 + 1e-6).all()


def test_starting_without_a_range_is_an_error() -> None:
    quantizer = make("adaround", spec("int8"), 0.25)
    quantizer.initialised = False
    with pytest.raises(QParamsError, match="uninitialised"):
        quantizer.start(torch.randn(3))


def test_another_weight_is_refused() -> None:
    quantizer = make("adaround", spec("int8"), 0.25)
    quantizer.start(torch.randn(3))
    with pytest.raises(QParamsError, match="learned to round a weight of shape"):
        quantizer(torch.randn(4))


def test_soft_rounding_does_not_export(tmp_path: Path) -> None:
    quantizer = make("adaround", spec("int8"), 0.25)
    x = torch.randn(5)
    quantizer.start(x)
    with pytest.raises(QParamsError, match="still rounds softly"):
        export(quantizer, x, tmp_path)
