"""Layers on sequences are deployable for every backend that asked to train them."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.backend import backends  # noqa: E402
from tests.zoo.hand_written import FunctionalAttention, Recurrent  # noqa: E402

NOT_WRITTEN = {
    "tvm": "its placement has convolutions only",
    "ncnn": "it runs batches of 1, and the test below has one",
}


class Sequences(nn.Module):
    """Linear, attention and a recurrent layer on inputs of three axes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True)
        self.cells = nn.GRU(8, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(self.encoder(self.first(x)))[0])


def trained(model: nn.Module, backend: str, x: Tensor) -> nn.Module:
    q = tb.prepare(model, backend, (x,))
    with tb.calibrating(q), torch.no_grad():
        q.eval()(x)
    tb.enable_quantization(q)
    optimizer = torch.optim.SGD(q.parameters(), 0.02)
    for _ in range(2):  # quantizers that started alike part ways
        optimizer.zero_grad()
        q.train()(x).square().mean().backward()
        optimizer.step()
    return q.eval()


@pytest.mark.parametrize("backend", [name for name in backends() if name not in NOT_WRITTEN])
def test_sequences(backend: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    q = trained(Sequences(), backend, x)
    assert not any(p.float_reason for p in q.onnxq_report.products), q.onnxq_report.summary()
    assert tb.deploy(q, x, tmp_path).proven


def test_ncnn(tmp_path: Path) -> None:
    x = torch.randn(1, 5, 8)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    assert tb.deploy(trained(model, "ncnn", x), x, tmp_path).proven


@pytest.mark.parametrize("causal", [False, True])
def test_softmax_with_dropout_and_a_mask_for_qnn(causal: bool, tmp_path: Path) -> None:
    """One quantizer after the softmax, none on scores with infinite numbers in them."""
    x = torch.randn(2, 6, 16)
    q = trained(FunctionalAttention(causal=causal), "qnn", x)
    rows = {row.tensor for row in q.onnxq_report.rows}
    assert "softmax" in rows
    assert not rows & {"dropped", "causally_masked"}
    assert tb.deploy(q, x, tmp_path).proven


def test_a_weight_that_several_steps_read_in_a_file_of_dynamo(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8)
    q = trained(Recurrent(nn.LSTM), "tensorrt", x)
    assert tb.deploy(q, x, tmp_path, exporter="dynamo").proven


class DropPath(nn.Module):
    """Drops whole samples in training, and returns its input in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand(x.shape[0], 1, 1) < 0.9) if self.training else x


def test_a_path_that_is_dropped_has_one_quantizer(tmp_path: Path) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.drop, self.head = nn.Linear(8, 8), DropPath(), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x + self.drop(self.layer(x)))

    x = torch.randn(2, 5, 8)
    assert tb.deploy(trained(Block(), "snpe", x), x, tmp_path).proven


@pytest.mark.parametrize(
    ("backend", "products", "why"),
    [
        ("snpe", 4, ""),
        ("qnn", 4, ""),
        ("tensorrt", 2, "the backend 'tensorrt-nlp' has them on codes"),
        ("vitis", 2, "multiplies codes with weights only"),
        ("academic", 2, "the backend 'academic-nlp' has them on codes"),
    ],
)
def test_products_of_activations_are_on_codes_or_the_report_says_why(
    backend: str, products: int, why: str, tmp_path: Path
) -> None:
    x = torch.randn(2, 6, 16)
    q = trained(FunctionalAttention(), backend, x)
    report = q.onnxq_report
    assert report.summary() == f"{products} of {products} products quantized"
    told = [note for note in report.notes if "products of two activations" in note]
    assert [f"2 products of two activations stay float for {backend}" in n for n in told] == (
        [True] if why else []
    )
    assert why in "".join(told)
    assert tb.deploy(q, x, tmp_path).proven
