"""y = (clamp(R(x/s) + z) - z) s;  dx = dy where lo <= R(x/s) + z <= hi, else 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.torch_bridge.fake_quant.quantizers import gradients, hard_values, make, spec

torch = pytest.importorskip("torch", reason="training needs torch")


@pytest.mark.parametrize(
    ("kind", "zero_point", "axis"), [("int4", 0, None), ("uint4", 5, None), ("int4", 3, 0)]
)
def test_forward_and_backward(kind: str, zero_point: int, axis: int | None) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    scale: Any = 0.25 if axis is None else torch.linspace(0.1, 0.5, 10)
    quantizer = make("fixed", spec(kind, symmetric=False, axis=axis), scale, zero_point)
    row = quantizer.qparams("x")
    assert quantizer(x).numpy().tobytes() == row.fake(x.numpy()).tobytes()

    code = np.rint(x.numpy() / row.broadcast((10, 40))[0]) + zero_point
    inside = (code >= row.lo) & (code <= row.hi)
    assert 0.2 < inside.mean() < 0.8
    dx, parameters = gradients(quantizer, x, dy)
    assert np.array_equal(dx, np.where(inside, dy.numpy(), 0))
    assert parameters == {}


def test_blocks() -> None:
    x = hard_values(0.25, 10, 40)
    scale = torch.rand(10, 5) + 0.1
    quantizer = make("fixed", spec("int4", axis=1, block=8), scale)
    row = quantizer.qparams("w")
    assert row.block == 8
    assert quantizer(x).numpy().tobytes() == row.fake(x.numpy()).tobytes()
