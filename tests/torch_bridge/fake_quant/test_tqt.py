"""s = 2^ceil(e) / 2^ceil(log2(hi+1)); de = ln2 s Σ dy (R(v) - v in range, lo below, hi above)."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize(("kind", "axis"), [("int4", None), ("uint4", None), ("int4", 0)])
def test_forward_and_backward(kind: str, axis: int | None) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    of = spec(kind, axis=axis, power_of_two=True)
    start: Any = 0.25 if axis is None else 2.0 ** torch.randint(-4, 0, (10,))
    quantizer = make("tqt", of, start)
    row = quantizer.qparams("x")
    assert np.array_equal(row.scale, start)
    assert quantizer(x).detach().numpy().tobytes() == row.fake(x.numpy()).tobytes()

    s = row.broadcast((10, 40))[0].astype(np.float64)
    v = x.numpy() / s
    code = np.rint(v)
    inside = (code >= of.lo) & (code <= of.hi)
    terms = np.log(2) * s * dy.numpy() * np.where(inside, code - v, np.clip(code, of.lo, of.hi))
    want = terms.sum() if axis is None else terms.sum(1)
    dx, parameters = gradients(quantizer, x, dy)
    assert np.array_equal(dx, np.where(inside, dy.numpy(), 0))
    assert close(parameters["log2_threshold"], want, terms)


@pytest.mark.parametrize(
    ("exponent", "scale"), [(0.0, 2.0**-3), (0.01, 2.0**-2), (1.0, 2.0**-2), (-2.5, 2.0**-5)]
)
def test_the_scale_is_the_power_of_two_at_or_above_the_threshold(
    exponent: float, scale: float
) -> None:
    quantizer = make("tqt", spec("int4"), 0.25)
    with torch.no_grad():
        quantizer.log2_threshold.fill_(exponent)
    assert quantizer.qparams("x").scale == scale


def test_a_start_that_is_no_power_of_two_is_rounded_up() -> None:
    assert make("tqt", spec("int4"), 0.3).qparams("x").scale == 0.5


def test_a_small_step_up_does_not_double_a_scale_that_started_on_a_power() -> None:
    quantizer = make("tqt", spec("int4"), 0.25)
    with torch.no_grad():
        quantizer.log2_threshold.add_(0.01)
    assert quantizer.qparams("x").scale == 0.25


def test_the_threshold_trains_to_another_power() -> None:
    quantizer = make("tqt", spec("int8"), 2.0**-9)
    optimizer = torch.optim.Adam(quantizer.parameters(), lr=0.1)
    x = torch.randn(500)
    for _ in range(60):
        optimizer.zero_grad()
        ((quantizer(x) - x) ** 2).mean().backward()
        optimizer.step()
    scale = quantizer.qparams("x").scale.item()
    assert 2.0**-7 <= scale <= 2.0**-5
    assert np.frexp(scale)[0] == 0.5


def test_zero_points_are_refused() -> None:
    with pytest.raises(OptionError, match="'tqt' cannot be"):
        algorithm("tqt")(spec("uint8", symmetric=False), Given(1.0))
