import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import SPECS, assert_gives, batches, make_spec  # noqa: E402
from torch_bridge.observers.ema_minmax import EmaMinMax  # noqa: E402


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("ratio", [0.9, 0.5])
def test_average_of_the_batch_ranges(axis, symmetric, ratio):
    out = EmaMinMax(make_spec(axis=axis, symmetric=symmetric), ema_ratio=ratio)
    low = high = None
    others = None if axis is None else tuple(i for i in range(3) if i != axis)
    for batch in batches(5):
        out(batch)
        a, b = (f(batch.double().numpy(), axis=others) for f in (np.min, np.max))
        low = a if low is None else ratio * low + (1 - ratio) * a
        high = b if high is None else ratio * high + (1 - ratio) * b
    assert_gives(out, low, high, exact=False)


def test_the_default_ratio():
    out = EmaMinMax(make_spec())
    out(torch.tensor([-1.0, 1.0]))
    out(torch.tensor([-2.0, 3.0]))
    assert_gives(out, -1.1, 1.2, exact=False)


def test_the_first_batch_is_taken_whole_and_later_ones_by_their_weight():
    out = EmaMinMax(SPECS["int8"], ema_ratio=0.75)
    for low, high in ((-4.0, 8.0), (0.0, 16.0), (-8.0, 0.0)):
        out(torch.tensor([low, high]))
    # -4 -> -3 -> -4.25; 8 -> 10 -> 7.5: exact in binary
    assert (out.min_val.item(), out.max_val.item()) == (-4.25, 7.5)


def test_ratio_zero_keeps_the_last_batch():
    out = EmaMinMax(SPECS["int8"], ema_ratio=0.0)
    for values in ([1.0, 9.0], [-2.0, 3.0]):
        out(torch.tensor(values))
    np.testing.assert_array_equal([out.min_val, out.max_val], [-2, 3])
