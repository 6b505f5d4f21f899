"""The exported graph holds what torch computes, under the names of its modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

import onnx  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from onnxq import load  # noqa: E402
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE  # noqa: E402
from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG, data_max_of  # noqa: E402
from onnxq.errors import UnsupportedModelError  # noqa: E402
from onnxq.running.sessions import reference  # noqa: E402
from tests.torch_bridge.hand_prepared import calibrated, hand_prepared, quantizer  # noqa: E402
from tests.torch_bridge.models import Siamese  # noqa: E402
from tests.torch_bridge.onnx_names import assert_names  # noqa: E402
from torch_bridge.export import export  # noqa: E402
from torch_bridge.fake_quant import ALGORITHMS  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import quantizers  # noqa: E402


def test_a_folded_weight_is_the_one_torch_quantized(tmp_path: Path) -> None:
    """torch's own W·f, bit for bit: the exporter's would round differently here and there."""

    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 32, 3, 3))
            self.variance = nn.Buffer(torch.rand(64) + 0.1)
            self.weight_fake_quant = quantizer((-127, 127), axis=0)

        def folded(self) -> Tensor:
            return self.weight * torch.rsqrt(self.variance + 1e-5).view(-1, 1, 1, 1).tanh()

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.conv2d(x, self.weight_fake_quant(self.folded()))

    model = nn.Sequential(Folded())
    x = torch.randn(1, 32, 5, 5)
    calibrated(model, x)
    made = load(export(model, x, tmp_path / "m.onnx"))
    (node,) = made.nodes(FAKE_QUANTIZE)
    assert node.inputs[0].name == "0.weight"
    assert np.array_equal(node.inputs[0].values, model[0].folded().detach().numpy())
    assert [n.op for n in made.nodes()] == ["FakeQuantize", "Conv"]


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_logarithmic_quantizers_are_nodes_of_their_own(exporter: Any, tmp_path: Path) -> None:
    if exporter == "dynamo":
        pytest.importorskip("onnxscript", reason="the dynamo exporter needs it")
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3))
    x = torch.randn(2, 3, 8, 8)
    q = prepare(net, "nnie", (x,))
    calibrated(q, x)
    file = export(q, x, tmp_path / "m.onnx", exporter=exporter)
    made = load(file)
    onnx.checker.check_model(onnx.load(file), full_check=True)
    assert not made.nodes(FAKE_QUANTIZE)
    found = {node.name: node for node in made.nodes(FAKE_QUANTIZE_LOG)}
    modules = quantizers(q)
    assert found.keys() == modules.keys()
    for path, node in found.items():
        assert data_max_of(node) == modules[path].data_max
    folded, _ = q.get_submodule("0").deployed_parameters()
    assert np.array_equal(found["0.weight_fake_quant"].inputs[0].values, folded.detach().numpy())
    assert found["0.weight_fake_quant"].inputs[0].name == "0.weight"
    (got,) = reference(file).run({"input": x.numpy()}).values()
    np.testing.assert_allclose(got, q.eval()(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_equal_initializers_are_told_apart(tmp_path: Path) -> None:
    """Exporters merge equal values; every quantizer still has constants of its own name."""
    model = hand_prepared(nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)]))
    with torch.no_grad():
        for layer in model:
            layer.weight.copy_(torch.eye(4))
            layer.bias.zero_()
    calibrated(model, torch.rand(2, 4))
    proto = onnx.load(export(model, torch.rand(2, 4), tmp_path / "m.onnx"))
    assert not [n for n in proto.graph.node if n.op_type == "Identity"]
    assert_names(proto, model)


def test_a_module_that_runs_twice_is_numbered(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    model = calibrated(hand_prepared(Siamese()), x, x + 1)
    names = {n.name for n in load(export(model, (x, x), tmp_path / "m.onnx")).nodes()}
    assert {"trunk.0/Conv", "trunk.0/Conv_1", "embed/Gemm", "embed/Gemm_1"} <= names
    assert {"embed.weight_fake_quant", "embed.weight_fake_quant_1"} <= names


def test_quantizers_in_a_row_stay_two(tmp_path: Path) -> None:
    """The second rounds what the first has rounded: its input is no weight to be folded."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))
            self.weight_fake_quant = quantizer((-127, 127), axis=0)
            self.again = quantizer((-7, 7))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.again(self.weight_fake_quant(self.weight)))

    x = torch.randn(2, 3)
    model = calibrated(Twice(), x)
    file = export(model, x, tmp_path / "m.onnx")
    assert [n.name for n in load(file).nodes(FAKE_QUANTIZE)] == ["weight_fake_quant", "again"]
    made = reference(file).run({"x": x.numpy()})["output"]
    np.testing.assert_allclose(made, model.eval()(x).detach().numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", sorted(ALGORITHMS))
def test_every_algorithm(method: str, tmp_path: Path) -> None:
    """Weights are exported as what the algorithm rounds, reshaped or not."""

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 16))
            self.weight_fake_quant = quantizer((-7, 7), method=method)
            self.act = quantizer((-127, 127))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(self.act(x), self.weight_fake_quant(self.weight))

    x = torch.randn(4, 16)
    model = calibrated(One(), x).eval()
    file = export(model, x, tmp_path / "m.onnx")
    onnx.checker.check_model(onnx.load(file), full_check=True)
    made = reference(file).run({"x": x.numpy()})["output"]
    np.testing.assert_allclose(made, model(x).detach().numpy(), rtol=0, atol=1e-5)


def test_a_quantizer_that_contradicts_itself(tmp_path: Path) -> None:
    model = calibrated(hand_prepared(nn.Sequential(nn.Linear(3, 3))), torch.randn(2, 3))
    other = quantizer((-7, 7))
    calibrated(nn.Sequential(other), torch.randn(2, 3))
    model[0].input_fake_quant.qparams = other.qparams
    with pytest.raises(UnsupportedModelError, match=r"-7\.\.7, .* exported with 0\.\.255"):
        export(model, torch.randn(2, 3), tmp_path / "m.onnx")
