import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.torch_bridge.observers.oracle import batches, make_spec  # noqa: E402
from torch_bridge.observers.histogram import Histogram, count_bins  # noqa: E402


def counted(data, **options):
    out = Histogram(make_spec(axis=options.pop("axis", None)), **options)
    for batch in data:
        out(batch)
    return out


def test_counts_equal_numpy():
    data = batches(3, (1000,))
    out = counted(data, bins=64)
    everything = np.concatenate([batch.double().numpy() for batch in data])
    reach = 2.0 ** np.ceil(np.log2(abs(everything).max()))
    want, edges = np.histogram(everything, 64, (-reach, reach))
    np.testing.assert_array_equal(out.counts.numpy(), want)
    assert out.width().item() == edges[1] - edges[0]


@pytest.mark.parametrize("axis", [None, 1])
def test_neither_order_nor_split_matters(axis):
    # from 1e-3 to 1e4, and with zeros and values on the bins' edges
    data = [b * 10.0**k for b, k in zip(batches(4), (-3, 4, 0, -1), strict=True)]
    data.append(torch.zeros(4, 6, 5))
    data.append(torch.tensor([0.25, -0.25, 1.0, -4.0, 4.0]).expand(4, 6, 5))
    want = counted(data, axis=axis, bins=256)
    for other in (data[::-1], data[2:] + data[:2], [torch.cat(data)]):
        got = counted(other, axis=axis, bins=256)
        assert torch.equal(got.counts, want.counts)
        assert torch.equal(got.exponent, want.exponent)
    assert (want.counts.sum(-1) == 6 * 120 // (1 if axis is None else 6)).all()


@pytest.mark.parametrize("value", [1.0, -1.0, 0.999, 2.0**-99, 2.0**-126, 3e38, -3e38, 0.0])
def test_a_value_lies_in_its_bin(value):
    out = counted([torch.tensor([value])], bins=16)
    (index,) = out.counts.nonzero()
    low = (index.item() - 8) * out.width().item()
    assert low <= value < low + out.width().item()


def test_a_large_value_after_small_ones():
    out = counted([torch.tensor([1e-30, -1e-30]), torch.tensor([1e30])], bins=16)
    np.testing.assert_array_equal(out.counts[6:10], [0, 1, 1, 0])
    assert out.counts.sum() == 3


def test_bins_of_each_row():
    index = torch.tensor([[[0, 1, 1], [2, 2, 2]]])
    assert count_bins(index, 4).tolist() == [[[1, 2, 0, 0], [0, 0, 3, 0]]]
    assert count_bins(index[..., :0], 2).tolist() == [[[0, 0], [0, 0]]]
