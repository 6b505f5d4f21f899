"""Weights that are computed from others: they are quantized, trained and deployed as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import utils  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import UnsupportedModelError  # noqa: E402

HOW = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "cayley": lambda layer: parametrizations.orthogonal(layer, orthogonal_map="cayley"),
}


class Net(nn.Module):
    def __init__(self, change: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.conv = change(nn.Conv2d(3, 8, 3, padding=1))
        self.norm = nn.BatchNorm2d(8)
        self.layer = change(nn.Linear(8, 8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.head(torch.relu(self.layer(y)))


@pytest.mark.parametrize("name", HOW)
def test_trained_and_deployed_by_both_exporters(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    q: Any = tb.prepare(Net(HOW[name]), "onnxruntime", (x,))
    assert q.onnxq_report.summary() == "3 of 3 products quantized"
    with tb.calibrating(q):
        q(x)
    tb.enable_quantization(q)
    before = {n: p.detach().clone() for n, p in q.named_parameters() if "original" in n}
    optimizer = torch.optim.SGD(q.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        q(x).square().sum().backward()
        optimizer.step()
    moved = [n for n, p in before.items() if not torch.equal(q.get_parameter(n), p)]
    assert {n.partition(".")[0] for n in moved} == {"conv", "layer"}
    for exporter in ("torchscript", "dynamo"):
        done = tb.deploy(q.eval(), (x,), tmp_path / exporter, exporter=exporter)  # type: ignore[arg-type]
        assert done.proven


@pytest.mark.parametrize("run_before", [False, True])
@pytest.mark.parametrize("change", [utils.weight_norm, utils.spectral_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_of_hooks_are_refused_with_the_way_out(change: Any, run_before: bool) -> None:
    model, x = Net(change), torch.randn(4, 3, 8, 8)
    if run_before:
        model(x)
    with pytest.raises(UnsupportedModelError, match="of 'conv' is computed by") as caught:
        tb.prepare(model, "onnxruntime", (x,))
    assert f"parametrizations.{change.__name__}" in caught.value.fix
