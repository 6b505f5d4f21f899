import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import batches, make_spec  # noqa: E402
from tests.torch_bridge.observers.test_minmax_floor import best  # noqa: E402
from torch_bridge.observers.pot_mode import PoTMode  # noqa: E402


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("symmetric", [True, False])
def test_most_votes_win(axis, symmetric):
    spec, alone = (make_spec("int4", symmetric=symmetric, axis=a) for a in (axis, None))
    out = PoTMode(spec)
    data = [*batches(5), *batches(6, seed=3)]
    ballots = []
    for batch in data:
        out(batch)
        rows = [batch] if axis is None else batch.unbind(axis)
        ballots.append([best(row.numpy(), alone) for row in rows])
    winners = []
    for votes in np.array(ballots).T:
        values, counts = np.unique(votes, return_counts=True)
        winners.append(values[np.argmax(counts)])  # np.unique sorts, argmax takes the first
    scale, zero = out.calculate()
    assert scale.reshape(-1).tolist() == [2.0**-e for e in winners]
    if not symmetric:
        lows = torch.stack(data).numpy().min(axis=None if axis is None else (0, 1, 3))
        want = np.clip(alone.lo - np.rint(lows * 2.0 ** np.array(winners)), alone.lo, alone.hi)
        assert zero.reshape(-1).tolist() == want.tolist()


def test_an_outlier_batch_is_outvoted_and_large_values_are_counted_in_place():
    out = PoTMode(make_spec(), tries=1)
    for peak in (1e5, 100.0, 1e5, 1e5, 90.0):
        out(torch.tensor([peak]))
    assert out.calculate()[0].item() == 2**10  # 1e5 / 127 = 787.4
    assert sorted(out.votes[out.votes > 0].tolist()) == [2, 3]


def test_a_tie_goes_to_the_coarser_grid():
    out = PoTMode(make_spec(), tries=1)
    for peak in (1.0, 100.0):
        out(torch.tensor([peak]))
    assert out.calculate()[0].item() == 1
