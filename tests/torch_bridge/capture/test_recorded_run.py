"""One run, with what the quantizers rounded and returned in it."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

from tests.torch_bridge.hand_prepared import calibrated, quantizer  # noqa: E402
from torch_bridge.capture.flat_call import FlatCall  # noqa: E402
from torch_bridge.capture.recorded_run import record  # noqa: E402


class Net(nn.Module):
    """A weight that is read twice, activations that differ, and a quantizer that is off."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.weight_fake_quant = quantizer((-7, 7))
        self.act = quantizer((-7, 7))
        self.off = quantizer((-7, 7))
        self.runs = 0

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        self.runs += 1
        for _ in range(2):
            x = self.act(x) @ self.weight_fake_quant(self.weight)
        return {"y": self.off(x)}


@pytest.fixture
def net() -> Net:
    model = Net()
    calibrated(model, torch.randn(2, 3))
    model.off.quantizing = False
    model.runs = 0
    return model


def test_one_run_holds_all_values(net: Net) -> None:
    x = torch.randn(2, 3)
    run = record(FlatCall(net, (x,), None))
    assert net.runs == 1
    assert net.training
    assert torch.equal(run.rounded["weight_fake_quant"], net.weight)
    assert run.rounded["act"] is None  # another tensor at each call
    weight = net.weight_fake_quant(net.weight).detach()
    assert [len(v) for v in run.returned.values()] == [2, 2]
    assert np.array_equal(run.returned["weight_fake_quant"][1], weight.numpy())
    assert np.array_equal(run.returned["act"][0], net.act(x).detach().numpy())
    assert torch.equal(run.outputs["y"], net.act(net.act(x) @ weight) @ weight)
    assert run.rounded.keys() == run.returned.keys() == {"act", "weight_fake_quant"}


def test_results_are_kept_where_they_are_asked_for(net: Net) -> None:
    call = FlatCall(net, (torch.randn(2, 3),), None)
    assert record(call, results=False).returned == {}


def test_results_are_copies() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = quantizer((-7, 7))

        def forward(self, x: Tensor) -> Tensor:
            return self.act(x).zero_()

    model = calibrated(InPlace(), torch.randn(2, 3))
    run = record(FlatCall(model, (torch.ones(2, 3),), None))
    assert run.returned["act"][0].any()


def test_no_hook_is_left_by_a_run_that_fails(net: Net) -> None:
    with pytest.raises(RuntimeError):
        record(FlatCall(net, (torch.randn(2, 5),), None))
    assert not any(module._forward_hooks for module in net.modules())
