"""Layers of derived classes: traced through, and plain layers again where they compute as such."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from torch_bridge.nn import FusedQatConv2d  # noqa: E402
from torch_bridge.nn.qat import QatConv1d, QatLinear  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import calibrating, quantizing  # noqa: E402


class PaddedConv(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(F.pad(input, (1, 2, 1, 2)), self.weight, self.bias, self.stride)


class CastLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input.to(self.weight.dtype), self.weight, self.bias)


class Standardised(nn.Conv2d):
    """The weight that it multiplies with is computed."""

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(input, weight, self.bias)


class NormAndRelu(nn.BatchNorm2d):
    """As in timm: the code of the norm written out, and an activation function after it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.act = nn.ReLU()

    def forward(self, input: Tensor) -> Tensor:
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        x = F.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            self.momentum,
            self.eps,
        )
        return self.act(x)


@pytest.mark.parametrize("capture", ["fx", "export"])
def test_a_batch_norm_with_code_of_its_own_is_folded(capture: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), NormAndRelu(4))
    x = torch.randn(2, 3, 8, 8)
    model.train()(x)
    q = prepare(model, "tensorrt", (x,), capture=capture)
    assert isinstance(q.get_submodule("0"), FusedQatConv2d)
    assert "Conv2d+BatchNorm+ReLU" in " ".join(q.onnxq_report.notes)
    with torch.no_grad():
        torch.testing.assert_close(q.eval()(x), model.eval()(x))
        before = q.get_submodule("0").bn.running_mean.clone()
        torch.testing.assert_close(q.train()(x), model.train()(x))
        assert not torch.equal(q.get_submodule("0").bn.running_mean, before)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = PaddedConv(3, 4, 3, stride=2, padding=5, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.standardised = Standardised(4, 4, 1)
        self.head = CastLinear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.standardised(F.relu(self.norm(self.conv(x))))
        return self.head(y.mean((2, 3)))


@pytest.mark.parametrize("capture", ["fx", "export"])
def test_layers_are_restored_fused_and_quantized(capture: str) -> None:
    model, x = Net(), torch.randn(2, 3, 8, 8)
    q = prepare(model, "tensorrt", (x,), capture=capture)
    assert isinstance(q.get_submodule("conv"), FusedQatConv2d)
    assert isinstance(q.get_submodule("head"), QatLinear)
    assert q.onnxq_report.summary() == "3 of 3 products quantized"
    with torch.no_grad():
        torch.testing.assert_close(q.eval()(x), model.eval()(x))
    with calibrating(q), torch.no_grad():
        q(x)
    with quantizing(q):
        q.train()(x).sum().backward()
    assert all(p.grad is not None for n, p in q.named_parameters() if "fake_quant" not in n)


def test_a_layer_that_is_called_twice_stays_a_function() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = CastLinear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.head(x))

    model, x = Twice(), torch.randn(2, 4)
    q = prepare(model, "tensorrt", (x,))
    torch.testing.assert_close(q(x), model(x))
    assert q.onnxq_report.summary() == "2 of 2 products quantized"


def test_another_name_for_a_layer() -> None:
    class Named(nn.Conv1d):
        pass

    model = nn.Sequential(Named(3, 4, 1), nn.Flatten())
    q = prepare(model, "tensorrt", (torch.randn(2, 3, 5),))
    assert isinstance(q.get_submodule("0"), QatConv1d)
