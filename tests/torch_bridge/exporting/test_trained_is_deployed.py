"""Trained = exported, for every backend's rules and every kind of network.

prepare -> calibrate -> train 20 steps -> eval -> export -> onnxruntime's reference session, which
must give torch's eval output to one step of the output's scale, 0.1 % of the elements moved, run
from input to output. The run ends with a table of all pairs.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the training side needs torch")

from onnxq.backend import backends  # noqa: E402
from onnxq.errors import UnsupportedModelError  # noqa: E402
from tests.checks.tables import TableRow  # noqa: E402
from tests.torch_bridge.models import ARCHITECTURES  # noqa: E402
from torch_bridge.capture.flat_call import FlatCall  # noqa: E402
from torch_bridge.capture.recorded_run import record  # noqa: E402
from torch_bridge.export import export  # noqa: E402
from torch_bridge.exporting.proof import prove_export  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import enable_calibration, enable_quantization  # noqa: E402

NETWORKS = ("resnet18", "mobilenet_v2", "unet", "transformer", "conv1d", "functional")
BACKENDS = sorted(backends())
TABLE = "torch against onnxruntime after training"
ATTEMPTS = 3
NOTHING_TO_QUANTIZE = {("academic-nlp", "unet"), ("tensorrt-nlp", "unet")}
"""Rules that look at Linear and MatMul alone, and a network that has neither."""


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [t for part in value for t in tensors(part)]


def train(model: torch.nn.Module, name: str, steps: int = 20) -> None:
    """A few steps towards outputs of unit size; ranges and weights move."""
    architecture = ARCHITECTURES[name]
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
    model.train()
    for _ in range(steps):
        optimiser.zero_grad()
        made = model(*architecture.inputs(4), **architecture.kwargs(4))
        loss = sum(((t - torch.ones_like(t)) ** 2).mean() for t in tensors(made))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_trained_is_exported(
    backend: str, network: str, tmp_path: Path, table_row: TableRow
) -> None:
    architecture = ARCHITECTURES[network]
    model = architecture.build()
    inputs, kwargs = architecture.inputs(2), architecture.kwargs(2)
    with warnings.catch_warnings():
        # What a backend leaves float in this network is told by a warning, and tested elsewhere.
        warnings.filterwarnings("ignore", category=UserWarning)
        q = prepare(model, backend, inputs, kwargs)
    if (backend, network) in NOTHING_TO_QUANTIZE:
        with pytest.raises(UnsupportedModelError, match="no quantizers"):
            enable_calibration(q)
        table_row(TABLE, backend=backend, network=network, judged="nothing to quantize")
        return
    enable_calibration(q)
    with torch.no_grad():
        for _ in range(3):
            q.train()(*architecture.inputs(4), **architecture.kwargs(4))
    enable_quantization(q)
    train(q, network)
    q.eval()
    path = export(q, inputs, tmp_path / "m.onnx", kwargs=kwargs)
    # A value between two codes may go another way, and shift what is computed from it: that is in
    # the data, and told by a note. A fault is in the network, and shows with any data.
    for _ in range(ATTEMPTS):
        call = FlatCall(q, architecture.inputs(2), architecture.kwargs(2))
        feeds = dict(zip(call.names, (t.numpy() for t in call.tensors), strict=True))
        report = prove_export(record(call), path, feeds)
        assert all(o.unit == "steps" for o in report.outputs)
        assert report.passed, [o for o in report.outputs if not o.passed]
        if not report.notes:
            break
    table_row(
        TABLE,
        backend=backend,
        network=network,
        steps=f"{max(o.max for o in report.outputs):.3g}",
        moved=f"{max(o.moved for o in report.outputs):.3%}",
        judged="quantizer by quantizer" if report.notes else "from input to output",
    )
    assert not report.notes
