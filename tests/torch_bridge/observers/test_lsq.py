import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import batches, make_spec  # noqa: E402
from torch_bridge.observers.lsq import LSQ  # noqa: E402


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int4", "int2"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_twice_the_mean_over_the_root_of_the_highest_code(axis, kind, symmetric):
    spec = make_spec(kind, symmetric=symmetric, axis=axis)
    out = LSQ(spec)
    for batch in batches():
        out(batch)
    x = batches()[-1].double().numpy()
    others = None if axis is None else (0, 2)
    scale = 2 * abs(x).mean(others) / np.sqrt(spec.hi)
    zero = 0 * scale if symmetric else spec.lo - np.rint(np.minimum(x.min(others), 0) / scale)
    got_scale, got_zero = out.calculate()
    np.testing.assert_allclose(got_scale.numpy(), scale, rtol=1e-6)
    np.testing.assert_array_equal(got_zero.numpy(), np.clip(zero, spec.lo, spec.hi))


def test_the_zero_point_is_an_integer_among_the_codes():
    out = LSQ(make_spec("uint4", symmetric=False))
    out(torch.tensor([-100.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    scale, zero = out.calculate()
    assert scale.item() == pytest.approx(20 / np.sqrt(15))
    assert zero.item() == 15  # 19.4 steps below 0 do not fit


def test_powers_of_two():
    out = LSQ(make_spec(power_of_two=True))
    out(torch.tensor([1.0, -1.0]))
    assert out.calculate()[0].item() == 2**-2  # 2 / sqrt(127) = 0.177 is nearer to 1/4 than 1/8
