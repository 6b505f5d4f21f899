"""Images of other sizes than that of the example, in networks that torch.export captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import OptionError  # noqa: E402
from onnxq.running.sessions import reference  # noqa: E402

AXES = {"x": [2, 3]}


class Mixed(nn.Module):
    """Convolutions, then attention over all places of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1, bias=False), nn.BatchNorm2d(8))
        self.down = nn.Conv2d(8, 8, 3, 4, 1)
        self.qkv = nn.Linear(8, 24)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(F.relu(self.stem(x)))
        batch, width, rows, columns = y.shape
        if rows * columns < 4:
            raise ValueError("the image is too small")
        tokens = y.flatten(2).transpose(1, 2)
        q, k, v = self.qkv(tokens).view(batch, rows * columns, 3, 2, width // 2).unbind(2)
        heads = (part.transpose(1, 2) for part in (q, k, v))
        seen = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return self.head((tokens + seen).mean(1))


def image(rows: int, columns: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, rows, columns)


def test_named_axes_take_any_size_in_training_and_evaluation() -> None:
    torch.manual_seed(0)
    model = Mixed()
    q: Any = tb.prepare(model, "onnxruntime", (image(64, 64),), dynamic_axes=AXES)
    assert q.onnxq_report.capture == "export"
    for x in (image(96, 96), image(80, 128, 3)):
        for training in (True, False):
            torch.testing.assert_close(q.train(training)(x), model.train(training)(x))


def test_axes_that_are_not_named_are_fixed_and_the_error_tells_how_to_open_them() -> None:
    q = tb.prepare(Mixed(), "onnxruntime", (image(64, 64),))
    with pytest.raises(OptionError, match=r"x\.shape\[2\] == 64") as caught:
        q(image(96, 96))
    assert "dynamic_axes" in caught.value.fix


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_the_file_takes_other_sizes_if_asked(exporter: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, other = image(64, 64), image(96, 80, 3)
    q = tb.prepare(Mixed(), "onnxruntime", (x,), dynamic_axes=AXES)
    with tb.calibrating(q):
        q(x)
    tb.enable_quantization(q)
    named = {"x": {0: "batch", 2: "height", 3: "width"}}
    done = tb.deploy(q.eval(), (x,), tmp_path, exporter=exporter, dynamic_axes=named)
    assert done.proven
    (made,) = reference(done.files[0]).run({"x": other.numpy()}).values()
    with torch.no_grad():
        wanted = q(other).numpy()
    np.testing.assert_allclose(made, wanted, atol=0.02 * float(np.abs(wanted).max()))


@pytest.mark.parametrize(("axes", "told"), [({"y": [2]}, "'y'"), ({"x": [4]}, "axis 4 of 'x'")])
def test_wrong_names_are_errors(axes: Any, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        tb.prepare(Mixed(), "onnxruntime", (image(64, 64),), dynamic_axes=axes)
