import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import make_spec, scale_and_zero  # noqa: E402
from torch_bridge.observers import scales  # noqa: E402

TINY = np.finfo(np.float32).tiny


def of_range(low, high, spec):
    low, high = torch.tensor(low), torch.tensor(high)
    scale = scales.scale_of(low, high, spec)
    return scale.float().tolist(), scales.zero_point_of(low, scale, spec).tolist()


@pytest.mark.parametrize(
    ("low", "high", "spec", "scale", "zero"),
    [
        (-1.0, 2.0, make_spec(), 2 / 127.5, 0),
        (-3.0, 2.0, make_spec(), 3 / 127.5, 0),
        (-1.0, 2.0, make_spec(lo=-127, hi=127), 2 / 127, 0),
        (-1.0, 1.0, make_spec("uint8", symmetric=False), 2 / 255, 128),  # the tie -127.5
        (1.0, 5.0, make_spec("uint8", symmetric=False), 5 / 255, 0),  # 0 is taken in
        (-5.0, -1.0, make_spec("uint8", symmetric=False), 5 / 255, 255),
        (-1.0, 3.0, make_spec("int8", symmetric=False), 4 / 255, -64),
        (-1.0, 3.0, make_spec("uint16", symmetric=False), 4 / 65535, 16384),
        (-9.0, 2.0, make_spec("uint8"), 2 / 255, 0),  # unsigned: negatives are clipped
        (-1.0, 1.0, make_spec("int2"), 1 / 1.5, 0),
        (-1.0, 0.9, make_spec(power_of_two=True), 2**-7, 0),
        (-1.0, 1.5, make_spec(power_of_two=True), 2**-6, 0),
        (-1.0, 3.0, make_spec("uint8", symmetric=False, power_of_two=True), 2**-6, 64),
        (0.0, 0.0, make_spec(), TINY, 0),
        (0.0, 0.0, make_spec("uint8", symmetric=False), TINY, 0),
        (0.0, 0.0, make_spec("int8", symmetric=False, power_of_two=True), TINY, -128),
    ],
)
def test_closed_form(low, high, spec, scale, zero):
    assert of_range(low, high, spec) == (float(np.float32(scale)), zero)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int4", "uint16"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("power_of_two", [True, False])
def test_random_ranges_equal_the_oracle(kind, symmetric, power_of_two):
    spec = make_spec(kind, symmetric=symmetric, power_of_two=power_of_two)
    rng = np.random.default_rng(1)
    low = (rng.normal(size=2000) * 10.0 ** rng.integers(-30, 30, 2000)).astype(np.float32)
    high = low + np.abs(low) * rng.exponential(2, 2000).astype(np.float32) + np.float32(1e-30)
    keep = high > 0 if spec.lo >= 0 and symmetric else np.ones(2000, bool)
    low, high = torch.from_numpy(low[keep]), torch.from_numpy(high[keep])
    scale = scales.scale_of(low, high, spec)
    want_scale, want_zero = scale_and_zero(low.numpy(), high.numpy(), spec)
    np.testing.assert_array_equal(scale.float().numpy(), want_scale)
    np.testing.assert_array_equal(scales.zero_point_of(low, scale, spec).numpy(), want_zero)


@pytest.mark.parametrize("power_of_two", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_largest_range_has_a_finite_scale(symmetric, power_of_two):
    most = torch.tensor(torch.finfo(torch.float32).max)
    spec = make_spec("int2", lo=-1, hi=0, symmetric=symmetric, power_of_two=power_of_two)
    scale = scales.scale_of(-most, most, spec).float()
    assert torch.isfinite(scale)
    assert scale > 0


def test_a_balanced_range_has_its_zero_in_the_middle_whatever_its_size():
    high = torch.rand(10_000, generator=torch.Generator().manual_seed(0)) * 100
    spec = make_spec("uint8", symmetric=False)
    scale = scales.scale_of(-high, high, spec)
    assert (scales.zero_point_of(-high, scale, spec) == 128).all()


def test_powers_of_two_are_exact():
    exponents = torch.arange(-126, 128).double()
    scale = scales.usable(torch.exp2(exponents), make_spec(power_of_two=True))
    assert scale.tolist() == [2.0**e for e in range(-126, 128)]
