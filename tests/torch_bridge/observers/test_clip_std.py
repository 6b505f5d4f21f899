import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import assert_gives, batches, make_spec  # noqa: E402
from torch_bridge.observers.clip_std import ClipStd  # noqa: E402


@pytest.mark.parametrize("axis", [None, 0, 2])
@pytest.mark.parametrize("k", [2.6, 1.0])
def test_mean_and_deviations_of_the_last_batch(axis, k):
    out = ClipStd(make_spec("uint8", symmetric=False, axis=axis), std_scale=k)
    for batch in batches(3, (4, 60, 5)):
        out(batch)
    x = batches(3, (4, 60, 5))[-1].double().numpy()
    others = None if axis is None else tuple(i for i in range(3) if i != axis)
    mu, sigma = x.mean(others), x.std(others)
    low = np.maximum(x.min(others), mu - k * sigma)
    high = np.minimum(x.max(others), mu + k * sigma)
    assert_gives(out, low, high, exact=False)


def test_an_outlier_is_clipped():
    x = torch.zeros(1000)
    x[:500], x[500:], x[0] = 1, -1, 50  # mean 0.049, deviation 1.869
    out = ClipStd(make_spec())
    out(x)
    mu = 49 / 1000
    assert out.max_val.item() == pytest.approx(mu + 2.6 * np.sqrt(3499 / 1000 - mu**2), rel=1e-6)
    assert out.min_val.item() == -1


def test_the_range_is_never_wider_than_the_data():
    out = ClipStd(make_spec())
    out(torch.tensor([-1.0, 1.0]))
    assert_gives(out, -1, 1)
