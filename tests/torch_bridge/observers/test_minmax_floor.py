import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import batches, make_spec  # noqa: E402
from torch_bridge.observers.minmax_floor import MinMaxFloor  # noqa: E402


def best(x, spec, tries=5, most=12):
    """The exponent of least squared error, tried one by one."""
    x = np.asarray(x, np.float32).astype(np.float64).reshape(-1)
    low, high = min(x.min(), 0), max(x.max(), 0)
    if spec.symmetric:
        covering = max(low / spec.lo if spec.lo else 0, high / spec.hi)
    else:
        covering = (high - low) / (spec.hi - spec.lo)
    start = most if covering < 2.0**-most else int(np.floor(-np.log2(covering)))
    errors = {}
    for e in range(start, min(start + tries, most + 1)):
        zero = 0 if spec.symmetric else spec.lo - np.rint(low * 2.0**e)
        codes = np.clip(np.rint(x * 2.0**e) + zero, spec.lo, spec.hi)
        errors[e] = (((codes - zero) * 2.0**-e - x) ** 2).sum()
    return min(errors, key=lambda e: (errors[e], e))


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int4"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("tries", [1, 5])
def test_least_error_of_the_last_batch(axis, kind, symmetric, tries):
    out = MinMaxFloor(make_spec(kind, symmetric=symmetric, axis=axis), tries=tries)
    for batch in batches():
        out(batch)
    last, alone = batches()[-1], make_spec(kind, symmetric=symmetric)
    rows = [last] if axis is None else last.unbind(axis)
    exponents = [best(row.numpy(), alone, tries) for row in rows]
    scale, zero = out.calculate()
    assert scale.reshape(-1).tolist() == [2.0**-e for e in exponents]
    if not symmetric:
        lows = np.array([min(row.min().item(), 0) for row in rows])
        want = alone.lo - np.rint(lows * 2.0 ** np.array(exponents))
        assert zero.reshape(-1).tolist() == np.clip(want, alone.lo, alone.hi).tolist()


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([127.0], 1),  # the highest code exactly
        ([127.1], 2),  # one try never clips
        ([-128.0, 1.0], 1),
        ([-128.1], 2),
        ([0.003], 2**-12),  # finer than the target has
        ([0.0], 2**-12),
        ([1e6], 2**13),  # 1e6 / 127 = 7874
        ([3e38], 2.0**120),
    ],
)
def test_one_try_covers_the_range(values, scale):
    out = MinMaxFloor(make_spec(), tries=1)
    out(torch.tensor(values))
    assert out.calculate()[0].item() == scale


def test_clipping_little_for_a_finer_grid():
    x = torch.rand(10_000, generator=torch.Generator().manual_seed(0)) * 127 / 128
    x[0] = 1.01  # does not fit 2^-7
    out = MinMaxFloor(make_spec())
    out(x)
    assert out.calculate()[0].item() == 2**-7


def test_the_finest_grid_is_an_option():
    out = MinMaxFloor(make_spec(), max_exponent=20)
    out(torch.tensor([2.0**-16]))
    assert out.calculate()[0].item() == 2**-20
