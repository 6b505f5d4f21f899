import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import assert_gives, batches, make_spec  # noqa: E402
from torch_bridge.observers.lsq_plus import LSQPlus  # noqa: E402


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize(
    ("spec", "codes"),
    [
        (make_spec(), 128),
        (make_spec(lo=-127, hi=127), 127.5),
        (make_spec("int4"), 8),
        (make_spec("uint8"), 256),
    ],
)
def test_three_deviations_over_half_the_codes(axis, spec, codes):
    out = LSQPlus(make_spec(spec.qtype.name, lo=spec.lo, hi=spec.hi, axis=axis))
    for batch in batches():
        out(batch)
    x = batches()[-1].double().numpy()
    others = None if axis is None else tuple(i for i in range(3) if i != axis)
    mu, sigma = x.mean(others), x.std(others)
    scale, zero = out.calculate()
    want = np.maximum(abs(mu - 3 * sigma), abs(mu + 3 * sigma)) / codes
    np.testing.assert_allclose(scale.numpy(), want, rtol=1e-6)
    assert not zero.any()


@pytest.mark.parametrize("axis", [None, 1])
def test_with_an_offset_the_range_of_the_last_batch(axis):
    out = LSQPlus(make_spec("uint4", symmetric=False, axis=axis))
    for batch in batches():
        out(batch)
    x = batches()[-1].numpy()
    others = None if axis is None else (0, 2)
    assert_gives(out, x.min(others), x.max(others))


def test_channels_do_not_share_their_extremes():
    out = LSQPlus(make_spec("uint8", symmetric=False, axis=0))
    out(torch.tensor([[0.0, 255.0], [-25.5, 0.0]]))
    scale, zero = out.calculate()
    assert scale.tolist() == pytest.approx([1, 0.1])
    assert zero.tolist() == [0, 255]
