"""Freezing, thawing and folding over a whole model."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from tests.torch_bridge.nn.layers import Off, max_abs_quantizer, randomise  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402


def model() -> nn.Sequential:
    """A fused quantized layer, a fused float one, batch norms alone (shared and frozen)."""
    shared = nn.BatchNorm2d(4)
    quantizer = max_abs_quantizer(torch.ones(4, 3, 1, 1), 0)
    made = nn.Sequential(
        qnn.FusedQatConv2d(3, 4, 1, bn=nn.BatchNorm2d(4), weight_quantizer=quantizer),
        qnn.FusedConv2d(4, 4, 1, bn=nn.BatchNorm2d(4), activation=nn.ReLU()),
        shared,
        nn.Sequential(nn.Conv2d(4, 4, 1), shared),
        qnn.FrozenBatchNorm2d(4),
        qnn.FusedConv2d(4, 4, 1, bn=qnn.FrozenBatchNorm2d(4)),
    )
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            randomise(module)
    return made


def statistics(net: nn.Module) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in net.state_dict().items() if "running" in k or "num_b" in k}


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    assert before.keys() == after.keys()
    return {k.rpartition(".")[0] for k in before if not torch.equal(before[k], after[k])}


def test_freezing_holds_through_train_and_is_undone() -> None:
    net = model()
    names = set(net.state_dict())
    before = statistics(net)
    x = torch.randn(3, 3, 4, 4)
    assert qnn.freeze_bn_stats(net) is net
    assert set(net.state_dict()) == names
    frozen = net.train()(x)
    assert torch.equal(frozen, net.eval()(x))
    assert not moved(before, statistics(net))
    assert net[2] is net[3][1], "a shared batch norm stays shared"

    qnn.unfreeze_bn_stats(net).train()
    assert type(net[2]) is type(net[3][1]) is nn.BatchNorm2d
    assert net[2] is net[3][1]
    net(x)
    assert moved(before, statistics(net)) == {"0.bn", "1.bn", "2", "3.1"}


def test_thawing_twice_or_without_freezing_changes_nothing() -> None:
    net = qnn.unfreeze_bn_stats(qnn.unfreeze_bn_stats(model()))
    assert type(net[4]) is qnn.FrozenBatchNorm2d
    assert net[0].bn.training
    assert not net[5].bn.training


def test_thawing_in_eval_stays_in_eval() -> None:
    net = qnn.unfreeze_bn_stats(qnn.freeze_bn_stats(model()).eval())
    assert not any(module.training for module in net.modules())


def test_optimizers_keep_their_parameters() -> None:
    net = model()
    before = {id(p) for p in net.parameters()}
    qnn.freeze_bn_stats(net)
    assert {id(p) for p in net.parameters()} == before


def test_fold_bn_keeps_eval() -> None:
    net = model().eval()
    x = torch.randn(3, 3, 4, 4)
    expected = net(x)
    assert qnn.fold_bn(net) is net
    assert net[0].bn is None
    assert net[1].bn is not None, "only quantized layers have a deployed form"
    assert torch.equal(net(x), expected)


def test_folded_for_a_while() -> None:
    net = nn.Sequential(
        qnn.FusedQatConv2d(3, 4, 1, bias=False, bn=nn.BatchNorm2d(4), weight_quantizer=Off())
    ).eval()
    twin = copy.deepcopy(net)
    parameters = list(net.parameters())
    x = torch.randn(3, 3, 4, 4)
    expected = net(x)

    def stopped() -> None:
        with qnn.folded_bn(net) as folded:
            assert set(folded.state_dict()) == {"0.weight", "0.bias"}
            assert torch.equal(folded(x), expected)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stopped()
    assert [id(p) for p in net.parameters()] == [id(p) for p in parameters]
    assert net.state_dict().keys() == twin.state_dict().keys()
    assert torch.equal(net(x), expected)
