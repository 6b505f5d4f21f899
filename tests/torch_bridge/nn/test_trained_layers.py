"""Fused layers with the real quantizers: calibrated, trained, put into eval, exported, run."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

import numpy as np  # noqa: E402
from torch import Tensor, fx, nn  # noqa: E402

from onnxq import graph  # noqa: E402
from onnxq.quant.qtypes import qtype  # noqa: E402
from onnxq.running import sessions  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.arithmetic.spec import QuantizerSpec  # noqa: E402
from torch_bridge.fake_quant import algorithm  # noqa: E402
from torch_bridge.fake_quant.base import FakeQuantize  # noqa: E402
from torch_bridge.insertion import fusion  # noqa: E402
from torch_bridge.observers import observer  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:You are using the legacy TorchScript:DeprecationWarning",
    "ignore:The feature will be removed:DeprecationWarning",
)


class Net(nn.Module):
    """Every kind of fused layer; gains of 0 as in residual networks trained from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        )
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.bn = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2, groups=2)
        self.up_bn = nn.BatchNorm2d(6)
        self.fc, self.fc_bn = nn.Linear(6, 5), nn.BatchNorm1d(5)
        self.head = nn.Linear(5, 4)
        nn.init.zeros_(self.bn.weight[:4])
        nn.init.constant_(self.bn.bias, 0.2)  # or the ReLU would stop the gradient
        nn.init.constant_(self.up_bn.weight, -0.7)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.depthwise(self.stem(x))).relu()
        y = torch.nn.functional.relu6(self.up_bn(self.up(y)))
        return self.head(self.fc_bn(self.fc(y.mean((2, 3)))).relu())


def quantizers(model: nn.Module) -> list[FakeQuantize]:
    return [module for module in model.modules() if isinstance(module, FakeQuantize)]


def quantized(model: nn.Module, name: str, bits: int) -> fx.GraphModule:
    made = fx.symbolic_trace(copy.deepcopy(model))
    report = fusion.fuse(made)
    assert len(report) == 4
    hi = 2 ** (bits - 1) - 1

    def make(layer: nn.Module, axis: int | None) -> FakeQuantize:
        spec = QuantizerSpec(qtype("int8"), -hi, hi, symmetric=True, axis=axis)
        return algorithm(name)(spec, observer("minmax")(spec))

    assert fusion.swap(made, make) == []
    return made


def switch(model: nn.Module, *, observing: bool, quantizing: bool) -> None:
    for quantizer in quantizers(model):
        quantizer.observing, quantizer.quantizing = observing, quantizing


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ["fixed", "lsq"])
def test_trained_is_exported(name: str, bits: int, tmp_path: Path) -> None:
    net = quantized(Net(), name, bits)
    x, target = torch.randn(32, 3, 8, 8), torch.randint(0, 4, (32,))
    assert {q.name for q in quantizers(net)} == {
        f"{layer}.weight_fake_quant" for layer in ("stem.0", "depthwise", "up", "fc", "head")
    }
    switch(net, observing=True, quantizing=False)
    net.eval()(x)
    switch(net, observing=False, quantizing=True)
    optimizer = torch.optim.Adam(net.train().parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(np.isfinite(losses))
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:3])
    learned = net.depthwise.bn.weight.detach()
    assert learned[:4].abs().min() > 0, "gains of 0 learn"

    with torch.no_grad():
        expected = net.eval()(x).numpy()
    file = tmp_path / "m.onnx"
    with qnn.folded_bn(net):
        torch.onnx.export(
            net, (x,), str(file), dynamo=False, opset_version=17, input_names=["x"],
            output_names=["y"],
        )  # fmt: skip
    model = graph.load(file)
    assert not model.nodes("BatchNormalization")
    assert len(model.nodes("onnxq::FakeQuantize")) == 5
    y = sessions.reference(model).run({"x": x.numpy()})["y"]
    assert np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()


def test_state_survives_a_checkpoint() -> None:
    net = quantized(Net(), "lsq", 8)
    x = torch.randn(8, 3, 8, 8)
    switch(net, observing=True, quantizing=False)
    net(x)
    switch(net, observing=False, quantizing=True)
    other = quantized(Net(), "lsq", 8)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other.eval()(x), net.eval()(x))
