import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import assert_gives, batches, make_spec  # noqa: E402
from torch_bridge.observers.ema_quantile import EmaQuantile  # noqa: E402


def clipped(x, quantile, bins):
    """Range of one batch by the definition, one bin at a time."""
    x = np.asarray(x, np.float32).reshape(-1)
    width = np.float32(abs(x).max()) / np.float32(bins)
    counts, _ = np.histogram(np.minimum(np.floor(abs(x) / width), bins - 1), bins, (0, bins))
    seen = 0
    for i, count in enumerate(counts):
        seen += count
        if seen / x.size >= quantile:
            clip = (i + 0.5) * float(width)
            return max(float(x.min()), -clip), min(float(x.max()), clip)
    raise AssertionError("the last bin completes the share")


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize(("quantile", "bins"), [(0.99999, 2048), (0.9, 2048), (0.95, 100)])
def test_average_of_clipped_ranges(axis, quantile, bins):
    spec = make_spec("uint8", symmetric=False, axis=axis)
    out = EmaQuantile(spec, quantile=quantile, bins=bins)
    state = None
    for batch in batches(4, (8, 3, 50)):
        out(batch)
        rows = [batch] if axis is None else batch.unbind(axis)
        new = np.array([clipped(row.numpy(), quantile, bins) for row in rows])
        state = new if state is None else 0.9 * state + 0.1 * new
    low, high = state.T if axis is not None else state[0]
    assert_gives(out, low, high, exact=False)


def test_by_hand():
    # |x| up to 8 in 4 bins of width 2: 3 of 4 values lie in bin 0, so the clip is 1.
    out = EmaQuantile(make_spec("uint8", symmetric=False), quantile=0.75, bins=4)
    out(torch.tensor([-8.0, 0.25, 0.5, 1.5]))
    assert_gives(out, -1, 1)


def test_an_outlier_moves_the_clip_into_its_place():
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    x[7] = 100
    out = EmaQuantile(make_spec())
    out(x)
    assert out.max_val < 6
