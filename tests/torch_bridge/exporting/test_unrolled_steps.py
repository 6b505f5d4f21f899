"""Files with recurrent layers take one number of steps, and say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

import torch_bridge as tb  # noqa: E402
from onnxq.errors import UnsupportedModelError  # noqa: E402
from tests.torch_bridge.test_recurrent_networks import Net, calibrated  # noqa: E402


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_steps_of_any_number_are_refused(exporter: Any, tmp_path: Path) -> None:
    x = torch.randn(2, 4, 8)
    q = calibrated(Net(), x)
    with pytest.raises(UnsupportedModelError) as caught:
        tb.export(q, x, tmp_path / "m.onnx", exporter=exporter, dynamic_axes={"x": {1: "steps"}})
    told = (
        str(caught.value) + str(caught.value.fix) + "".join(getattr(caught.value, "__notes__", ()))
    )
    assert "'cells': written step by step" in told
    assert "exclude=['cells']" in told
