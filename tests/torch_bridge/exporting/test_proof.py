"""torch and onnxruntime compared, output by output and quantizer by quantizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq.proof.verify import Report  # noqa: E402
from tests.torch_bridge.hand_prepared import calibrated, hand_prepared, quantizer  # noqa: E402
from tests.torch_bridge.models import Conv1dNet  # noqa: E402
from torch_bridge.capture.flat_call import FlatCall  # noqa: E402
from torch_bridge.capture.recorded_run import record  # noqa: E402
from torch_bridge.export import export  # noqa: E402
from torch_bridge.exporting import proof  # noqa: E402


@pytest.fixture
def exported(tmp_path: Path) -> tuple[nn.Module, torch.Tensor, Path]:
    x = torch.randn(4, 4, 32)
    model = calibrated(hand_prepared(Conv1dNet()), x)
    return model, x, export(model, x, tmp_path / "m.onnx")


def test_every_quantizer_is_compared(exported: tuple[nn.Module, torch.Tensor, Path]) -> None:
    model, x, file = exported
    report = proof.prove_export(record(FlatCall(model, (x,), None)), file, {"x": x.numpy()})
    assert report.passed
    assert [layer.node for layer in report.layers] == [
        f"{layer}.{part}_fake_quant"
        for layer in ("body.0", "body.3", "body.6", "head")
        for part in ("weight", "input")
    ]
    assert all(layer.unit == "steps" and layer.max == 0 for layer in report.layers)
    assert report.sessions == ("torch", "reference")
    assert model.training


def test_a_changed_weight_is_found(exported: tuple[nn.Module, torch.Tensor, Path]) -> None:
    model, x, file = exported
    with torch.no_grad():
        model.body[3].weight += 0.1
    report = proof.prove_export(record(FlatCall(model, (x,), None)), file, {"x": x.numpy()})
    assert not report.passed
    moved = [layer.node for layer in report.layers if layer.moved]
    assert moved[0] == "body.3.weight_fake_quant"


class Tie(nn.Module):
    """Rounds the first value down in torch and up in the file: it lies between two codes."""

    def __init__(self, off: float) -> None:
        super().__init__()
        self.off = off
        self.act = quantizer((-2, 1))
        self.fc = nn.Linear(4096, 8, bias=False)
        self.out = quantizer((-127, 127))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        off = torch.zeros(4096)
        if torch.onnx.is_in_onnx_export():
            off[: 1 if self.off < 1e-3 else None] = self.off
        return self.out(self.fc(self.act(x + off)))


def _tied(off: float, tmp_path: Path) -> Report:
    model = Tie(off)
    nn.init.constant_(model.fc.weight, 0.1)
    x = torch.zeros(1, 4096)
    x[0, 1:9] = torch.tensor([-2.0, 1.0] * 4)
    calibrated(model, x)
    x[0, 0] = 0.5 * float(
        model.act.scale.detach()
    )  # half to even: 0 in torch, 1 with anything added
    model.out.set_range(torch.tensor(0.01), torch.tensor(0))
    file = export(model, x, tmp_path / "m.onnx")
    return proof.prove_export(record(FlatCall(model, (x,), None)), file, {"x": x.numpy()})


def test_a_value_between_two_codes_is_no_fault(tmp_path: Path) -> None:
    report = _tied(1e-6, tmp_path)
    assert report.passed
    assert "went another way" in report.notes[0]
    moved = {layer.node: layer.moved for layer in report.layers if layer.moved}
    assert moved == {"act": 1 / 4096}


def test_many_other_codes_are_a_fault(tmp_path: Path) -> None:
    report = _tied(0.9, tmp_path)
    assert not report.passed
    assert report.worst is not None
    assert report.worst.node == "act"
    assert "went another way" not in report.notes[0]


def test_outputs_without_a_quantizer_are_measured_on_an_8_bit_grid() -> None:
    step = proof._eight_bit(np.array([1.0, -255.0, np.inf], np.float32))
    assert step is not None
    assert step.largest == 2.0
    assert proof._eight_bit(np.zeros(3, np.float32)) is None
    assert proof._eight_bit(np.arange(3)) is None
