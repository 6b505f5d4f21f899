"""Frozen batch norms never use or collect batch statistics."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from tests.torch_bridge.nn.layers import randomise  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.nn.frozen_batch_norm import FROZEN  # noqa: E402

RANKS = [
    (nn.BatchNorm1d, (7, 3)),
    (nn.BatchNorm2d, (7, 3, 4, 4)),
    (nn.BatchNorm3d, (7, 3, 2, 2, 2)),
]


@pytest.mark.parametrize(("kind", "shape"), RANKS)
def test_training_is_evaluation(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    bn = kind(3)
    randomise(bn)
    state = copy.deepcopy(bn.state_dict())
    frozen = FROZEN[kind].from_float(bn).train()
    nn.Sequential(frozen).train()
    assert not frozen.training
    x = torch.randn(shape)
    assert torch.equal(frozen(x), bn.eval()(x))
    assert frozen.state_dict().keys() == state.keys()
    assert all(torch.equal(frozen.state_dict()[k], v) for k, v in state.items())
    frozen(x).square().sum().backward()
    assert frozen.weight.grad.abs().min() > 0, "the affine part still learns"


def test_thawed_it_is_the_batch_norm_again() -> None:
    bn = nn.BatchNorm2d(3)
    thawed = qnn.FrozenBatchNorm2d.from_float(bn).thaw()
    assert type(thawed) is nn.BatchNorm2d
    assert thawed.weight is bn.weight
    assert thawed.training
    thawed(torch.randn(2, 3, 4, 4))
    assert int(bn.num_batches_tracked) == 1, "buffers are shared with the original"


def test_statistics_are_required() -> None:
    with pytest.raises(OptionError, match="no running statistics"):
        qnn.FrozenBatchNorm2d(3, track_running_stats=False)
    with pytest.raises(OptionError, match="no running statistics"):
        qnn.FrozenBatchNorm2d.from_float(nn.BatchNorm2d(3, track_running_stats=False))


def test_copies() -> None:
    frozen = qnn.FrozenBatchNorm2d(3)
    for twin in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert not twin.train().training


def foreign(channels: int) -> nn.Module:
    """A frozen batch norm as detection libraries write it: four buffers."""

    class FrozenBatchNorm2d(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.eps = 1e-3
            for name in ("weight", "bias", "running_mean"):
                self.register_buffer(name, torch.randn(channels))
            self.register_buffer("running_var", torch.rand(channels) + 0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = self.weight * (self.running_var + self.eps).rsqrt()
            shift = self.bias - self.running_mean * scale
            return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)

    return FrozenBatchNorm2d()


def test_foreign_frozen_batch_norms_are_replaced() -> None:
    shared = foreign(3)
    model = nn.Sequential(nn.Conv2d(3, 3, 1), shared, nn.Sequential(shared, foreign(3)))
    x = torch.randn(2, 3, 4, 4)
    expected = model(x)
    assert qnn.replace_foreign_frozen(model) == ["1", "2.0", "2.1"]
    assert model[1] is model[2][0]
    assert type(model[1]) is qnn.FrozenBatchNorm2d
    torch.testing.assert_close(model.train()(x), expected)
    assert not any(p.requires_grad for p in model[1].parameters())
    assert qnn.replace_foreign_frozen(model) == []
