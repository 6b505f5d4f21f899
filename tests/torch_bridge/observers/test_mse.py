import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import assert_gives, batches, error, make_spec  # noqa: E402
from torch_bridge.observers.mse import MSE  # noqa: E402


def best(x, spec, candidates=95, power=2.0):
    """The factor of least error, tried one by one."""
    x = np.asarray(x, np.float32).reshape(-1)
    low, high = float(x.min()), float(x.max())
    tries = [1 - 0.01 * i for i in range(candidates)]
    errors = [error(x, f * low, f * high, spec, power) for f in tries]
    least = tries[int(np.argmin(errors))]
    return least * low, least * high


@pytest.mark.parametrize("kind", ["int8", "int4", "uint4", "int2"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("power", [2.0, 3.5])
def test_union_of_the_best_ranges(kind, symmetric, power):
    spec = make_spec(kind, symmetric=symmetric)
    out = MSE(spec, power=power)
    ranges = []
    for batch in batches(3, (500,)):
        out(batch)
        ranges.append(best(batch.numpy(), spec, power=power))
    low, high = np.array(ranges).T
    assert_gives(out, low.min(), high.max(), exact=False)


@pytest.mark.parametrize("axis", [0, 1])
def test_per_channel(axis):
    spec = make_spec("int4", axis=axis)
    out = MSE(spec, candidates=60)
    (batch,) = batches(1, (5, 7, 20))
    out(batch)
    alone = make_spec("int4")
    low, high = np.array([best(row.numpy(), alone, 60) for row in batch.unbind(axis)]).T
    assert_gives(out, low, high, exact=False)


def test_a_tensor_on_the_grid_is_not_shrunk():
    out = MSE(make_spec(lo=-127, hi=127))
    out(torch.arange(-127, 128) * 0.5)
    assert_gives(out, -63.5, 63.5)


def test_an_outlier_that_costs_little_is_clipped():
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    x[0] = 12
    out = MSE(make_spec("int4"))
    out(x)
    assert out.max_val < 5
