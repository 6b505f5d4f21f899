"""Batch normalisation as gain and bias."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from tests.torch_bridge.nn.layers import randomise  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.nn.bn_fold import (  # noqa: E402
    folded_bias,
    gain,
    is_batch_norm,
    why_not_foldable,
)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_gain_and_bias_are_the_batch_norm(affine: bool, bias: bool) -> None:
    bn = nn.BatchNorm1d(5, affine=affine, eps=1e-2).double().eval()
    randomise(bn)
    b = torch.randn(5, dtype=torch.float64) if bias else None
    x = torch.randn(9, 5, dtype=torch.float64)
    folded = x * gain(bn) + folded_bias(bn, b, gain(bn))
    torch.testing.assert_close(folded, bn(x if b is None else x + b))


def test_reasons() -> None:
    deconv = nn.ConvTranspose2d(4, 6, 1, groups=2)
    assert why_not_foldable(deconv, nn.BatchNorm2d(6)) == ""
    assert "3 channels, but the layer computes 6" in why_not_foldable(deconv, nn.BatchNorm2d(3))
    bare = nn.BatchNorm2d(6, track_running_stats=False)
    assert "no running statistics" in why_not_foldable(deconv, bare)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.BatchNorm1d(2), True),
        (nn.SyncBatchNorm(2), True),
        (qnn.FrozenBatchNorm3d(2), True),
        (nn.InstanceNorm2d(2), False),
        (nn.ReLU(), False),
    ],
)
def test_is_batch_norm(module: nn.Module, expected: bool) -> None:
    assert is_batch_norm(module) is expected
