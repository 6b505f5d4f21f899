"""t = clamp(1/2 + (|x|-c)/(2d), 0, 1), u = sign(x) t^g, y = (c+d) R(u hi)/hi; by the chain rule."""

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


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize(("kind", "bending"), [("int4", 1.0), ("int4", 0.6), ("uint4", 1.0)])
def test_forward_and_backward(kind: str, bending: float, axis: int | None) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    of = spec(kind, axis=axis)
    quantizer = make("qil", of, torch.full((10,), 0.25) if axis == 0 else 0.25)
    shape = () if axis is None else (10,)
    with torch.no_grad():
        quantizer.center.copy_(torch.full(shape, 1.1))
        quantizer.half_width.copy_(torch.full(shape, 0.8))
        if kind == "int4":
            quantizer.bending.fill_(bending)
    c, d = np.float64(np.float32(1.1)), np.float64(np.float32(0.8))
    g = np.float64(np.float32(bending))
    values, given = x.numpy().astype(np.float64), dy.numpy().astype(np.float64)
    sign = np.sign(values) if kind == "int4" else 1.0
    size = np.abs(values) if kind == "int4" else values
    line = 0.5 + (size - c) / (2 * d)
    t = np.clip(line, 0, 1)
    u = sign * t**g
    v = u * of.hi
    clear = np.abs(v - np.floor(v) - 0.5) > 1e-4  # float32 may round the others either way
    want = (c + d) * np.rint(v) / of.hi
    got = quantizer(x).detach().numpy()
    assert np.allclose(got[clear], want[clear], rtol=1e-6, atol=1e-7)
    assert clear.mean() > 0.95

    inside = (line > 0) & (line < 1)
    assert 0.1 < inside.mean() < 0.9
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(inside, g * t ** (g - 1), 0)  # du/dt without the sign
        logs = np.where(inside, t**g * np.log(t), 0)
    dx, parameters = gradients(quantizer, x, dy)
    line_slope = sign if kind == "int4" else 1.0
    want_dx = (c + d) * given * sign * slope * line_slope / (2 * d)
    assert np.allclose(dx, want_dx, rtol=1e-3, atol=1e-5)
    over = (lambda a: a.sum()) if axis is None else (lambda a: a.sum(1))
    dc = given * (u - (c + d) * sign * slope / (2 * d))
    dd = given * (u - (c + d) * sign * slope * (size - c) / (2 * d * d))
    assert close(parameters["center"], over(dc), 10 * dc)
    assert close(parameters["half_width"], over(dd), 10 * dd)
    if kind == "int4":
        dg = (c + d) * given * sign * logs
        assert close(parameters["bending"], over(dg), 10 * dg)


def test_it_starts_with_nothing_pruned_and_the_observed_bound() -> None:
    quantizer = make("qil", spec("int4"), 0.25)
    assert quantizer.center == quantizer.half_width == 7 * 0.25 / 2
    y = quantizer(torch.tensor([0.25, 1.75, 9.0, -1.75, 0.0]))
    assert torch.allclose(y, torch.tensor([0.25, 1.75, 1.75, -1.75, 0.0]))


def test_the_interval_stays_right_of_zero() -> None:
    quantizer = make("qil", spec("int4"), 0.25)
    with torch.no_grad():
        quantizer.center.fill_(-1.0)
        quantizer.half_width.fill_(-1.0)
        quantizer.bending.fill_(-1.0)
    x = torch.randn(20, requires_grad=True)
    y = quantizer(x)
    y.sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("fields", [{"symmetric": False}, {"axis": 0, "block": 4}])
def test_other_grids_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="'qil' cannot be"):
        algorithm("qil")(spec(**fields), Given(1.0))
