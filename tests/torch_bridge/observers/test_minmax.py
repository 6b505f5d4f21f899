import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import SPECS, assert_gives, batches, make_spec  # noqa: E402
from torch_bridge.observers.minmax import MinMax  # noqa: E402


@pytest.mark.parametrize("name", ["int8", "narrow", "uint8", "uint8-zero", "uint16", "pot"])
def test_per_tensor_is_the_range_of_all_batches(name):
    out = MinMax(SPECS[name])
    for batch in batches():
        out(batch)
    everything = np.stack([batch.numpy() for batch in batches()])
    assert_gives(out, everything.min(), everything.max())


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("symmetric", [True, False])
def test_per_channel_is_the_range_of_each_channel(axis, symmetric):
    out = MinMax(make_spec(axis=axis, symmetric=symmetric))
    for batch in batches():
        out(batch)
    others = tuple(i for i in range(4) if i != axis + 1)
    everything = np.stack([batch.numpy() for batch in batches()])
    assert_gives(out, everything.min(others), everything.max(others))
