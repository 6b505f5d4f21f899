import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import SPECS  # noqa: E402
from torch_bridge.observers.last_batch import LastBatch  # noqa: E402


def test_only_the_latest_batch_counts():
    out = LastBatch(SPECS["int8"])
    for values in ([-100.0, 100.0], [0.5, 2.0]):
        out(torch.tensor(values))
    np.testing.assert_array_equal([out.min_val, out.max_val], [0.5, 2])
