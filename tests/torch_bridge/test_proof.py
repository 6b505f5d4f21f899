"""torch and onnxruntime compared, output by output and quantizer by quantizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from tests.torch_bridge.hand_prepared import calibrated, hand_prepared  # noqa: E402
from tests.torch_bridge.models import Conv1dNet  # noqa: E402
from torch_bridge import proof  # noqa: E402
from torch_bridge.export import export  # noqa: E402
from torch_bridge.flat_call import FlatCall  # noqa: E402


@pytest.fixture
def exported(tmp_path: Path) -> tuple[nn.Module, torch.Tensor, Path]:
    x = torch.randn(4, 4, 32)
    model = calibrated(hand_prepared(Conv1dNet()), x)
    return model, x, export(model, x, tmp_path / "m.onnx")


def test_every_quantizer_is_compared(exported: tuple[nn.Module, torch.Tensor, Path]) -> None:
    model, x, file = exported
    report = proof.prove_export(FlatCall(model, (x,), None), file, {"x": x.numpy()})
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
    report = proof.prove_export(FlatCall(model, (x,), None), file, {"x": x.numpy()})
    assert not report.passed
    moved = [layer.node for layer in report.layers if layer.moved]
    assert moved[0] == "body.3.weight_fake_quant"


def test_outputs_without_a_quantizer_are_measured_on_an_8_bit_grid() -> None:
    step = proof._eight_bit(np.array([1.0, -255.0, np.inf], np.float32))
    assert step is not None
    assert step.largest == 2.0
    assert proof._eight_bit(np.zeros(3, np.float32)) is None
    assert proof._eight_bit(np.arange(3)) is None
