import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import assert_gives, make_spec  # noqa: E402
from torch_bridge.observers.histogram_kl import HistogramKL, Magnitudes  # noqa: E402


def divergence(h, i, levels):
    """KL(i) by its definition, bin by bin."""
    h = np.asarray(h, np.float64)
    p = h[:i].copy()
    p[-1] += h[i:].sum()
    q = np.zeros(i)
    for group in range(levels):
        members = [j for j in range(i) if j * levels // i == group and h[j] > 0]
        for j in members:
            q[j] = h[members].sum() / len(members)
    p /= p.sum()
    q = q / q.sum() if q.any() else q
    q = (1 - 1e-4) * q + 1e-4 / i
    return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def best_threshold(x, bins, levels, stride):
    """The threshold by its definition."""
    x = np.asarray(x, np.float64).reshape(-1)
    width = 2.0 * 2.0 ** np.ceil(np.log2(np.nextafter(abs(x).max(), np.inf))) / bins
    h = np.bincount((abs(x[x != 0]) / width).astype(int), minlength=bins // 2)
    used = int(np.flatnonzero(h)[-1]) + 1
    if used <= levels:
        return abs(x).max()
    candidates = [*range(levels, used, stride), used]
    costs = [divergence(h, i, levels) for i in candidates]
    return max(i for i, cost in zip(candidates, costs, strict=True) if cost == min(costs)) * width


@pytest.mark.parametrize("levels", [4, 8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_divergence_equals_its_definition(levels, seed):
    rng = np.random.default_rng(seed)
    rows = rng.poisson(rng.exponential(3, (3, 64)) * (rng.random((3, 64)) < 0.6))
    rows[0, :40] = 0  # everything beyond the first thresholds
    magnitudes = Magnitudes(torch.from_numpy(rows).double())
    for i in range(levels, 65):
        want = [divergence(row, i, levels) for row in rows]
        np.testing.assert_allclose(magnitudes.divergence(i, levels).numpy(), want, atol=1e-12)


@pytest.mark.parametrize("stride", [1, 5])
@pytest.mark.parametrize(
    ("spec", "levels", "positive"),
    [
        (make_spec("int4"), 8, False),
        (make_spec("uint4"), 16, True),
        (make_spec("uint4", symmetric=False), 16, True),
        (make_spec("uint4", symmetric=False), 8, False),
    ],
)
def test_threshold_equals_the_definition(spec, levels, positive, stride):
    generator = torch.Generator().manual_seed(levels)
    x = torch.randn(4000, generator=generator) * torch.rand(4000, generator=generator) ** 2
    x = x.relu() if positive else x
    out = HistogramKL(spec, bins=256, stride=stride)
    for part in x.split(1000):
        out(part)
    threshold = best_threshold(x.numpy(), 256, levels, stride)
    assert threshold < x.abs().max()
    assert_gives(out, max(x.min().item(), -threshold), min(x.max().item(), threshold))


def test_channels_are_searched_alone():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 3000, generator=generator) * torch.tensor([[1.0], [0.01], [30.0]])
    x[1] = x[1].abs()  # one sign: twice the levels
    out = HistogramKL(make_spec("uint4", symmetric=False, axis=0), bins=256, stride=3)
    out(x)
    tops = np.array(
        [best_threshold(r, 256, n, 3) for r, n in zip(x.numpy(), (8, 16, 8), strict=True)]
    )
    low, high = x.double().numpy().min(1), x.double().numpy().max(1)
    assert_gives(out, np.maximum(low, -tops), np.minimum(high, tops))


def test_the_bins_that_other_channels_use_do_not_matter():
    x = torch.rand(64, 400, generator=torch.Generator().manual_seed(0))
    x *= torch.linspace(1, 2, 64)[:, None]  # the last bin in use moves from 32 to 64
    together = HistogramKL(make_spec("int4", axis=0), bins=128, stride=1)
    together(x)
    for row, scale in zip(x, together.calculate()[0], strict=True):
        alone = HistogramKL(make_spec("int4"), bins=128, stride=1)
        alone(row)
        assert alone.calculate()[0] == scale


def test_too_few_bins_to_gain_anything_clip_nothing():
    out = HistogramKL(make_spec("int16"), bins=4096)
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    out(x)
    assert_gives(out, x.min().item(), x.max().item())


def test_exact_zeros_do_not_count():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, generator=generator).abs()
    alone, padded = (HistogramKL(make_spec("uint8")) for _ in range(2))
    alone(x)
    padded(torch.cat([x, torch.zeros(1_000_000)]))
    assert torch.equal(alone.calculate()[0], padded.calculate()[0])


def test_an_outlier_is_clipped():
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    x[3] = 60
    out = HistogramKL(make_spec())
    out(x)
    assert out.range()[1] < 10
