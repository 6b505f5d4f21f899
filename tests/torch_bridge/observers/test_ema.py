import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import SPECS  # noqa: E402
from torch_bridge.observers.ema import Ema  # noqa: E402


def test_the_first_batch_is_taken_whole_and_later_ones_by_their_weight():
    out = Ema(SPECS["int8"], ema_ratio=0.75)
    for low, high in ((-4.0, 8.0), (0.0, 16.0), (-8.0, 0.0)):
        out(torch.tensor([low, high]))
    # -4 -> -3 -> -4.25; 8 -> 10 -> 7.5: exact in binary
    assert (out.min_val.item(), out.max_val.item()) == (-4.25, 7.5)


def test_ratio_zero_keeps_the_last_batch():
    out = Ema(SPECS["int8"], ema_ratio=0.0)
    for values in ([1.0, 9.0], [-2.0, 3.0]):
        out(torch.tensor(values))
    np.testing.assert_array_equal([out.min_val, out.max_val], [-2, 3])
