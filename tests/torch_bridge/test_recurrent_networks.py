"""Networks with recurrent layers, from preparing to files that are proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

import onnxq  # noqa: E402
import torch_bridge as tb  # noqa: E402
from tests.zoo.codes import products_on_codes  # noqa: E402
from torch_bridge.nn.recurrent import Recurrent  # noqa: E402


class Net(nn.Module):
    """Both directions of two layers, and a head on the last state."""

    def __init__(self, kind: Any = nn.LSTM, *, branches: bool = False) -> None:
        super().__init__()
        self.cells = kind(8, 6, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 3)
        self.branches = branches

    def forward(self, x: Tensor) -> Tensor:
        if self.branches and x.shape[0] > 100:  # FX cannot trace this
            raise ValueError("too many rows")
        return self.head(self.cells(x)[0])


def calibrated(model: nn.Module, *args: Tensor, **options: Any) -> Any:
    q = tb.prepare(model, "onnxruntime", args, **options)
    with tb.calibrating(q), torch.no_grad():
        q.eval()(*args)
    tb.enable_quantization(q)
    return q


@pytest.mark.parametrize(
    ("kind", "branches", "capture"),
    [(nn.LSTM, False, "fx"), (nn.GRU, True, "export"), (nn.RNN, False, "modules")],
)
def test_trained_on_any_length_and_deployed(
    kind: Any, branches: bool, capture: Any, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 8)
    model = Net(kind, branches=branches).eval()
    prepared = tb.prepare(model, "onnxruntime", (x,), capture=capture)
    assert prepared.onnxq_report.summary() == "9 of 9 products quantized"
    assert any("one after the other" in note for note in prepared.onnxq_report.notes)
    torch.testing.assert_close(prepared.eval()(x), model(x))
    for name, value in tb.float_state(prepared).items():
        torch.testing.assert_close(value, model.state_dict()[name])
    q = calibrated(model, x, capture=capture).train()
    before = {name: p.detach().clone() for name, p in q.named_parameters()}
    optimizer = torch.optim.SGD(q.parameters(), 0.1)
    for batch in (x, x[:2, :4], torch.cat([x, x], 1)):
        q(batch).square().mean().backward()
        optimizer.step()
    moved = {n for n, p in q.named_parameters() if not torch.equal(p, before[n])}
    assert moved >= {n for n in before if n.startswith("cells.") and n.endswith(".weight")}
    exporter: Any = "dynamo" if kind is nn.LSTM else "torchscript"
    done = tb.deploy(q, x, tmp_path, exporter=exporter, dynamic_axes={"x": {0: "rows"}})
    assert done.proven
    count, in_float = products_on_codes(onnxq.load(done.files[0]))
    # Inputs of all steps are one product; a state is none before the first step.
    assert (count, in_float) == (4 * (1 + 4) + 1, [])
    assert any("step by step" in n for proof in done.proofs for n in proof.report.notes)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # of torch about its own layer
@pytest.mark.filterwarnings("ignore:Exporting a model to ONNX with a batch_size other than 1")
@pytest.mark.parametrize("selector", ["cells", nn.GRU])
def test_one_that_stays_float_is_torchs_own(selector: Any, tmp_path: Path) -> None:
    x = torch.randn(2, 4, 8)
    q = calibrated(Net(nn.GRU), x, exclude=selector)
    assert type(q.cells) is nn.GRU
    assert q.onnxq_report.summary().endswith("float as asked: cells (excluded)")
    done = tb.deploy(q, x, tmp_path, dynamic_axes={"x": {1: "steps"}})
    assert done.proven
    assert len(list(onnxq.load(done.files[0]).nodes("GRU"))) == 2
    with pytest.warns(UserWarning, match="nothing in the model is quantized"):
        q = tb.prepare(Net(nn.GRU), "tvm", (x,))  # it has convolutions on codes only
    assert type(q.cells) is nn.GRU
    assert "cells: GRU as one float operator, none of its layers is quantized" in str(
        q.onnxq_report
    )


class Packed(nn.Module):
    """Sequences of different lengths, packed."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        return self.head(pad_packed_sequence(self.cells(packed)[0], batch_first=True)[0])


def test_packed_sequences_stay_float_and_the_report_says_so() -> None:
    with pytest.warns(UserWarning, match="packed sequences; pad them"):
        q = tb.prepare(
            Packed(), "onnxruntime", (torch.randn(2, 4, 8), torch.tensor([4, 2])), capture="modules"
        )
    assert q.onnxq_report.summary() == (
        "1 of 2 products quantized; float: cells (it is called with packed sequences; pad them to "
        "have it quantized)"
    )
    assert type(q.cells) is nn.LSTM


class Loop(nn.Module):
    """A cell called in a loop of the model's own; the type of its state decides."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell = kind(8, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in range(3):
            state = self.cell(x[:, step], state)
        return self.head(state[0] if isinstance(state, tuple) else state)


@pytest.mark.parametrize(("kind", "capture"), [(nn.LSTMCell, "export"), (nn.GRUCell, "fx")])
def test_cells(kind: Any, capture: str, tmp_path: Path) -> None:
    """FX takes a placeholder for no tuple, so its graph fails: torch.export is next."""
    x = torch.randn(4, 3, 8)
    q = calibrated(Loop(kind), x)
    assert q.onnxq_report.capture == capture
    assert q.onnxq_report.summary() == "3 of 3 products quantized"
    assert tb.deploy(q, x, tmp_path).proven


def test_rules_reach_the_layers_inside() -> None:
    x = torch.randn(2, 4, 8)
    rules = [("cells", {"bits": 4})]
    q = tb.prepare(Net(), "academic", (x,), settings=rules)
    rows = {row.module: row.what for row in q.onnxq_report.rows}
    assert "int4" in rows["cells.cells.0.hidden.weight_fake_quant"]
    assert isinstance(q.cells, Recurrent)
