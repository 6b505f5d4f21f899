"""Code that writes into buffers is not traced by FX, which would run it once and for all."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import torch_bridge as tb  # noqa: E402
from torch_bridge.nn.written_buffers import WrittenBuffers  # noqa: E402


class Steps(nn.Module):
    """Counts its calls, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.steps.add_(1)
        return self.layer(x) + self.steps


class Average(Steps):
    """Follows its inputs, by another tensor each time."""

    def forward(self, x: Tensor) -> Tensor:
        self.steps = self.steps * 0.5 + x.detach().mean()
        return self.layer(x) - self.steps


class Centred(Steps):
    """Follows its inputs in training alone."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps.mul_(0.5)
            self.steps.add_(1)
        return self.layer(x) - self.steps


class Norm(nn.BatchNorm1d):
    """A batch norm with an activation in it, as in timm."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        mean, variance = self.running_mean, self.running_var
        return F.relu(F.batch_norm(x, mean, variance, self.weight, self.bias, self.training))


def prepared(model: nn.Module, capture: str = "auto") -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return tb.prepare(model, "onnxruntime", (torch.randn(2, 8),), capture=capture)


@pytest.mark.parametrize("capture", ["auto", "fx", "modules"])
@pytest.mark.parametrize("kind", [Steps, Average])
def test_each_call_writes(kind: type[nn.Module], capture: str) -> None:
    model = kind()
    q = prepared(model, capture)
    assert float(model.steps) == float(q.steps) == 0, "prepare changes neither"
    for training in (True, False, True):
        x = torch.randn(3, 8)
        torch.testing.assert_close(q.train(training)(x), model.train(training)(x))
        torch.testing.assert_close(q.steps, model.steps)


def test_the_report_says_why() -> None:
    report = prepared(Steps()).onnxq_report
    assert report.capture == "export"
    assert "FX cannot trace the model itself (it writes into its buffer 'steps')" in str(report)


def test_a_buffer_that_is_replaced_is_lost_by_both_tracers() -> None:
    report = prepared(Average()).onnxq_report
    assert not report.traced
    why = "it puts another tensor in the place of its buffer 'steps'"
    assert f"torch.export cannot capture Average: {why}" in str(report)


@pytest.mark.parametrize("capture", ["fx", "export"])
def test_a_table_for_the_sizes_of_a_call_is_no_state(capture: str) -> None:
    class Positions(Steps):
        def forward(self, x: Tensor) -> Tensor:
            if self.steps.dim() == 0:
                self.steps = torch.arange(8.0)
            return self.layer(x) + self.steps

    report = prepared(Positions(), capture).onnxq_report
    assert (report.capture, report.leaves) == (capture, [])


@pytest.mark.parametrize("kind", [Average, Centred])
@pytest.mark.parametrize("capture", ["fx", "export"])
def test_a_block_that_writes_is_a_leaf_of_the_graph(kind: type[nn.Module], capture: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), kind(), nn.Linear(8, 8))
    q = prepared(model, capture)
    for training in (True, True, False):
        x = torch.randn(3, 8)
        torch.testing.assert_close(q.train(training)(x), model.train(training)(x))
    assert q.onnxq_report.traced
    assert q.onnxq_report.summary() == "3 of 3 products quantized"


def test_the_counter_of_a_batch_norm_is_no_reason() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Norm(8))
    report = prepared(model).onnxq_report
    assert (report.capture, report.leaves) == ("fx", [])


def test_values_come_back() -> None:
    model = nn.Sequential(Steps(), Average(), Steps())
    buffers = WrittenBuffers(model)
    model(torch.randn(4, 8))
    assert buffers.restore() == ["0.steps", "1.steps", "2.steps"]
    assert float(model[0].steps) == float(model[2].steps) == 0
