"""FQ(W·f) / f in one pass is the same as in three."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="the training side needs torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import torch_bridge as tb  # noqa: E402
from torch_bridge.fake_quant.lsq import Lsq  # noqa: E402


def network(gamma: float) -> nn.Module:
    """Conv + BN + ReLU prepared with LSQ, its ranges set; one channel has another gain."""
    net = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU())
    nn.init.uniform_(net[1].weight, 0.5, 1.5)
    nn.init.uniform_(net[1].running_var, 0.5, 2.0)
    with torch.no_grad():
        net[1].weight[2] = gamma
    x = torch.randn(4, 3, 8, 8)
    q = tb.prepare(net, "tensorrt", (x,), weight="lsq", activation="lsq")
    with tb.calibrating(q), torch.no_grad():
        q(x)
    tb.enable_quantization(q)
    return q.train()


@pytest.mark.parametrize("gamma", [1.0, -0.7, 0.0])
def test_output_and_gradients_agree(gamma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    q = network(gamma)
    other = copy.deepcopy(q)
    x = torch.randn(4, 3, 8, 8)
    used = []
    real = Lsq.quantize_scaled

    def watched(self: Lsq, x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor | None:
        used.append(real(self, x, gain))
        return used[-1]

    monkeypatch.setattr(Lsq, "quantize_scaled", watched)
    y = q(x)
    y.square().sum().backward()
    # A gain of zero cannot be moved into a scale: that layer takes the long way.
    assert [u is not None for u in used] == ([] if gamma == 0 else [True])
    monkeypatch.setattr(Lsq, "quantize_scaled", lambda *_: None)
    z = other(x)
    z.square().sum().backward()
    torch.testing.assert_close(y, z, rtol=1e-5, atol=1e-5)
    for (name, a), (_, b) in zip(q.named_parameters(), other.named_parameters(), strict=True):
        if not a.requires_grad:  # the scale of the input
            assert b.grad is None
            continue
        scale = b.grad.abs().max().clamp(min=1e-6)
        assert (a.grad - b.grad).abs().max() <= 1e-4 * scale, name


def test_what_is_dropped_at_random_is_dropped_in_fused_layers_too() -> None:
    """QDrop that quantizes no element in training is the float layer, and rounds in eval."""
    net = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6)).train()
    x = torch.randn(4, 3, 8, 8)
    drop = {"algorithm": "qdrop", "options": {"probability": 0.0}}
    q = tb.prepare(net, "tensorrt", (x,), weight=drop)
    with tb.calibrating(q), torch.no_grad():
        q(x)
    net[1].load_state_dict(q.get_submodule("0").bn.state_dict())
    tb.enable_quantization(q, only="weights")
    y = net(x)
    torch.testing.assert_close(q(x), y, rtol=1e-5, atol=1e-5)
    assert (q.eval()(x) - net.eval()(x)).abs().max() > 1e-4


@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_of_the_quantizer_are_called(register: str, everywhere: bool) -> None:
    q = network(1.0)
    quantizer = q.get_submodule("0").weight_fake_quant
    seen = []

    def hook(module: nn.Module, *_: object) -> None:
        seen.append(module)

    if everywhere:
        name = register.replace("register_", "register_module_")
        handle = getattr(nn.modules.module, name)(hook)
    else:
        handle = getattr(quantizer, register)(hook)
    try:
        q(torch.randn(4, 3, 8, 8, requires_grad=True)).sum().backward()
    finally:
        handle.remove()
    assert seen.count(quantizer) == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_frozen_statistics_make_activation_checkpointing_exact(reentrant: bool) -> None:
    """The second forward pass of a checkpoint repeats the first to the bit."""
    q = tb.freeze_bn_stats(network(1.0))
    other = copy.deepcopy(q)
    x = torch.randn(4, 3, 8, 8, requires_grad=True)
    q(x).square().sum().backward()
    checkpoint(other, x, use_reentrant=reentrant).square().sum().backward()
    pairs = zip(q.parameters(), other.parameters(), strict=True)
    learned = [(a, b) for a, b in pairs if a.requires_grad]
    assert len(learned) > 3
    assert all(torch.equal(a.grad, b.grad) for a, b in learned)
