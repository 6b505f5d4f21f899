import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import assert_gives, batches, make_spec  # noqa: E402
from torch_bridge.observers.percentile import Percentile  # noqa: E402

UINT8 = make_spec("uint8", symmetric=False)


def test_on_the_grid_the_quantile_is_exact():
    # Bins 1/8 wide for values below 512: k is in [k, k + 1/8), so 1..1000 has quantile q at
    # 1000 q + 1/8, and seen from the other side at 1001 - 1000 q.
    out = Percentile(make_spec("uint8", symmetric=False), quantile=0.9, bins=16384)
    values = torch.arange(1.0, 1001)
    for part in values[torch.randperm(1000, generator=torch.Generator().manual_seed(0))].split(77):
        out(part)
    assert out.width() == 0.125
    low, high = out.range()
    assert (low.item(), high.item()) == (101, 900.125)
    assert_gives(out, 101, 900.125)


def test_a_share_hit_exactly_is_enough():
    values = torch.cat([torch.ones(9999), torch.tensor([100.0])])
    out = Percentile(UINT8, quantile=0.9999)
    out(values)
    assert out.range()[1].item() == 1 + out.width().item()


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("quantile", [0.75, 0.99, 0.9999])
def test_within_a_bin_of_the_true_quantile(axis, quantile):
    data = batches(3, (40, 6, 50))
    out = Percentile(make_spec(axis=axis), quantile=quantile)
    for batch in data:
        out(batch)
    everything = torch.cat(data).double().numpy()
    rows = everything.reshape(1, -1) if axis is None else np.moveaxis(everything, 1, 0)
    rows = rows.reshape(len(rows), -1)
    high = np.quantile(rows, quantile, axis=1, method="inverted_cdf")
    low = -np.quantile(-rows, quantile, axis=1, method="inverted_cdf")
    width = out.width().numpy().reshape(-1)
    got_low, got_high = (t.numpy().reshape(-1) for t in out.range())
    assert np.all((high <= got_high) & (got_high <= high + width))
    assert np.all((low - width <= got_low) & (got_low <= low))


@pytest.mark.parametrize("axis", [None, 0])
def test_the_whole_share_is_min_max(axis):
    out = Percentile(make_spec("uint8", symmetric=False, axis=axis), quantile=1)
    for batch in batches():
        out(batch)
    assert torch.equal(out.range()[0], out.min_val.double())
    assert torch.equal(out.range()[1], out.max_val.double())


def test_an_outlier_is_cut():
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    x[5] = 1000
    out = Percentile(UINT8)
    out(x)
    assert out.range()[1] < 5
