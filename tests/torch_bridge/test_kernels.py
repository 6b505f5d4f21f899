"""That the implementations agree, and how the eager one keeps its promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.functional import fake_quantize, lsq  # noqa: E402
from torch_bridge.kernels import COMPOSED, EAGER, kernels_for, open_interval, tracing  # noqa: E402


@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("zero_point", [0.0, 3.0, None])
def test_eager_and_composed_agree_to_the_last_bit(channel: bool, zero_point: float | None) -> None:
    x, dy = torch.randn(30, 50) * 5, torch.randn(30, 50)
    size = (30, 1) if channel else ()
    s = torch.rand(size) + 0.1
    z = torch.randint(-4, 4, size).float() if zero_point is None else torch.full(size, zero_point)
    lo, hi = -8, 7
    y, want = (k.forward(x, s, z, lo, hi) for k in (EAGER, COMPOSED))
    assert y.numpy().tobytes() == want.numpy().tobytes()
    dx, want = (k.ste(dy, x, s, z, lo, hi) for k in (EAGER, COMPOSED))
    assert torch.equal(dx, want)
    with torch.no_grad():
        for dims in ([0, 1], [1], []):
            got, wanted = (k.lsq(dy, x, s, z, lo, hi, dims) for k in (EAGER, COMPOSED))
            assert torch.equal(got[0], wanted[0])
            torch.testing.assert_close(got[1], wanted[1], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("scale", [2.0**-7, 0.1 / 3, 123.4, 1e-30, 1e-45, 6e37])
def test_the_open_interval_is_the_widest_that_is_in_range(scale: float) -> None:
    s = np.float32(scale)
    low, high = -8, 7
    interval = open_interval(float(s), low, high)
    a, b = (np.float32(v) for v in interval)
    assert (float(a), float(b)) == interval

    def in_range(x: np.float32) -> bool:
        return bool(low <= np.rint(x / s) <= high)

    assert not in_range(a)
    assert not in_range(b)
    assert in_range(np.nextafter(a, np.float32(0)))
    assert in_range(np.nextafter(b, np.float32(0)))


def test_only_what_came_in_is_kept_for_the_backward_pass() -> None:
    x = torch.randn(100, requires_grad=True)
    scale = torch.tensor(0.1, requires_grad=True)
    zero_point = torch.tensor(0, dtype=torch.int32)
    kept: list[Any] = []

    def keep(tensor: Any) -> Any:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        fake_quantize(x, scale, zero_point, axis=None, lo=-8, hi=7)
        lsq(x, scale, zero_point, axis=None, lo=-8, hi=7, grad_scale=1.0)
    own = {t.data_ptr() for t in (x, scale, zero_point)}
    assert len(kept) == 6
    assert {t.data_ptr() for t in kept} == own


def test_the_eager_kernels_are_for_float32_on_the_cpu() -> None:
    assert not tracing()
    assert kernels_for(torch.ones(1)) is EAGER
    assert kernels_for(torch.ones(1, dtype=torch.float64)) is COMPOSED
    assert kernels_for(torch.ones(1, device="meta")) is COMPOSED
