from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from onnxq.backend import find_backend  # noqa: E402
from onnxq.side_files.nnie_inputs import UNWRITABLE  # noqa: E402
from tests.torch_bridge.hand_prepared import calibrated  # noqa: E402
from torch_bridge.deploy import deploy  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402


class Net(nn.Module):
    """A depthwise layer, a product and a global pool among ops that the file tells."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.prelu = nn.PReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise(self.stem(x))
        x = F.conv2d(x, self.depthwise.weight, None, 1, 1, 1, 8)
        x = self.prelu(x) * x
        return self.head(self.pool(x).flatten(1))


def noted(model: nn.Module) -> set[str]:
    notes = [n for n in model.onnxq_report.notes if "cannot contain the range" in n]
    return {note.partition(" (")[0] for note in notes}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def test_every_op_that_the_file_cannot_tell_is_named(x: torch.Tensor) -> None:
    q = prepare(Net(), "nnie", (x,))
    assert noted(q) == {"depthwise", "conv2d", "prelu", "mul", "pool"}
    (grouped,) = [n for n in q.onnxq_report.notes if n.startswith("depthwise (")]
    assert "depthwise (a convolution in groups): files for nnie" in grouped
    assert "the cost is measured" in grouped
    assert grouped in str(q.onnxq_report)


def test_what_is_named_is_what_deploying_drops(x: torch.Tensor, tmp_path: Path) -> None:
    net = Net()
    q = calibrated(prepare(net, "nnie", (x,)), x)
    done = deploy(q, x, tmp_path, strict=False)
    assert done.change is not None
    dropped = [r for t in done.change.traces for r in t.rewrites]
    assert len(dropped) == len(noted(q)) + 1  # both inputs of the product
    for part in ("depthwise", "Mul", "PRelu", "GlobalAveragePool"):
        assert any(part in line for line in dropped), dropped


def test_a_network_that_the_file_holds_has_no_such_note(x: torch.Tensor, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3))
    q = prepare(net, "nnie", (x,))
    assert noted(q) == set()
    done = deploy(calibrated(q, x), x, tmp_path)
    assert done.change is None


def test_what_stays_float_is_not_named(x: torch.Tensor) -> None:
    q = prepare(Net(), "nnie", (x,), exclude=["depthwise", "conv2d"])
    assert noted(q) == {"prelu", "mul", "pool"}


def test_other_targets_have_a_place_for_all(x: torch.Tensor) -> None:
    assert noted(prepare(Net(), "tensorrt", (x,))) == set()


def test_the_placement_follows_the_file() -> None:
    placement = find_backend("nnie").placement
    assert placement.unwritable <= UNWRITABLE
    assert {"GlobalAveragePool", "Mul", "PRelu", "Sigmoid"} <= placement.unwritable
