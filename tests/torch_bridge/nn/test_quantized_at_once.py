"""FQ(W·f) / f in one pass is the same as in three."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="the training side needs torch")

from torch import nn  # noqa: E402

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
