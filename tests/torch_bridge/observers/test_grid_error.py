import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import error, make_spec, scale_and_zero  # noqa: E402
from torch_bridge.observers import grid_error as module  # noqa: E402
from torch_bridge.observers.grid_error import grid_error  # noqa: E402

UINT4 = make_spec("uint4", symmetric=False)


def test_one_value_by_hand():
    # 0.7 / 0.5 rounds to 1, and 9 is clipped to 15 - 2 = 13 steps.
    rows, scale, zero = torch.tensor([0.7, 9.0]), torch.tensor([0.5]), torch.tensor([2])
    squared = grid_error(rows, scale, zero, UINT4)
    assert squared.tolist() == pytest.approx([0.2**2 + 2.5**2], rel=1e-6)
    absolute = grid_error(rows, scale, zero, UINT4, power=1)
    assert absolute.tolist() == pytest.approx([0.2 + 2.5], rel=1e-6)


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 17])
@pytest.mark.parametrize("power", [2, 2.4])
def test_any_blocking_gives_the_oracle(block, power, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    rows = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    lows = torch.tensor([[-1.0, -2, -0.5], [-0.5, -1, -3]])
    scale, zero = scale_and_zero(lows.numpy(), lows.numpy() + 3, UINT4)
    got = grid_error(rows, torch.from_numpy(scale), torch.from_numpy(zero), UINT4, power=power)
    want = [
        [error(row, low, low + 3, UINT4, power) for row, low in zip(rows.numpy(), of, strict=True)]
        for of in lows.numpy()
    ]
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_no_values_no_error():
    scale = torch.ones(4, 2)
    assert grid_error(torch.empty(2, 0), scale, torch.zeros(4, 2), UINT4).tolist() == [[0, 0]] * 4
