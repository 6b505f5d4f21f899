"""Names of the TorchScript exporter, compared with a file that it writes."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

from onnxq.graph import load  # noqa: E402
from torch_bridge.capture.tracing import LeafTracer, TraceOptions  # noqa: E402
from torch_bridge.insertion.script_names import script_names  # noqa: E402


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x) + x)


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + 1) * (x + 2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv2d(4, 4, 1)))
        self.blocks, self.twice = nn.ModuleList([Block(), nn.Sequential(Block())]), Twice()
        self.fc, self.last = nn.Linear(4, 5), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.last(self.fc(self.twice(x).flatten(2).transpose(1, 2)).mean(1))


def test_names_are_those_in_the_file(tmp_path: Path) -> None:
    model, tracer = Net().eval(), LeafTracer()
    tracer.start(TraceOptions(), ())
    graph = tracer.trace(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (torch.zeros(1, 3, 8, 8),), str(tmp_path / "m.onnx"), dynamo=False)
    written = {node.name for node in load(tmp_path / "m.onnx").nodes()}
    modules = dict(model.named_modules(remove_duplicate=False))
    made = {key: written & {*names} for key, names in script_names(modules, graph).items()}
    assert made["stem.0"] == {"/stem/stem.0/Conv"}
    assert made["stem.1.0"] == {"/stem/stem.1/stem.1.0/Conv"}
    assert made["blocks.0.conv"] == {"/blocks.0/conv/Conv"}
    assert made["blocks.1.0.conv"] == {"/blocks.1/blocks.1.0/conv/Conv"}
    assert made["add"] == {"/blocks.0/Add"}
    assert made["relu_1"] == {"/blocks.1/blocks.1.0/Relu"}
    assert made["fc"] == {"/fc/MatMul"}
    assert made["last"] == {"/last/Gemm"}
    assert made["mul"] == {"/twice/Mul"}
    # Two sums in one module: their names in the file have numbers.
    assert {"add_2", "add_3"}.isdisjoint(made)


def test_without_a_graph_there_are_modules_only() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    assert script_names(dict(model.named_modules()), None) == {"0": ("/0/Conv",), "1": ("/1/Relu",)}
