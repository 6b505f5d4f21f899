import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import assert_gives, batches, make_spec  # noqa: E402
from tests.torch_bridge.observers.test_mse import best  # noqa: E402
from torch_bridge.observers.ema_mse import EmaMSE  # noqa: E402


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("ratio", [0.9, 0.25])
def test_average_of_the_best_ranges(axis, ratio):
    spec, alone = (make_spec("int4", symmetric=False, axis=a) for a in (axis, None))
    out = EmaMSE(spec, ema_ratio=ratio, candidates=50)
    state = None
    for batch in batches(3, (3, 200)):
        out(batch)
        rows = [batch] if axis is None else batch.unbind(axis)
        new = np.array([best(row.numpy(), alone, 50) for row in rows])
        state = new if state is None else ratio * state + (1 - ratio) * new
    low, high = state.T if axis is not None else state[0]
    assert_gives(out, low, high, exact=False)
