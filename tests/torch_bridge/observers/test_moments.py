import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.observers.moments import mean, mean_and_std  # noqa: E402


def test_equal_numpy():
    x = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)) * 2 + 5
    mu, sigma = mean_and_std(x)
    np.testing.assert_allclose(mu.numpy(), x.double().numpy().mean(1), rtol=1e-14)
    np.testing.assert_allclose(sigma.numpy(), x.double().numpy().std(1), rtol=1e-13)


def test_a_small_deviation_from_a_large_mean():
    # Squares of 2^20 +- 1/8 need 47 bits; their difference would keep none of the result's digits
    # in float32.
    mu, sigma = mean_and_std(torch.tensor([2.0**20 + 0.125, 2.0**20 - 0.125]))
    assert (mu.item(), sigma.item()) == (2.0**20, 0.125)


def test_one_value_does_not_deviate():
    assert mean_and_std(torch.tensor([7.0]))[1] == 0
    assert mean(torch.tensor([[1.0, 2.0], [3.0, 5.0]])).tolist() == [1.5, 4]
