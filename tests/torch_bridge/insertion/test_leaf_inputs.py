"""Leaf modules share quantizers of their arguments with the graph and among their layers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

from torch_bridge.prepare import prepare  # noqa: E402


class Net(nn.Module):
    """Attention of a tensor to itself or to another, then a recurrent layer."""

    def __init__(self, *, crossed: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.cells = nn.GRU(8, 4, batch_first=True, bidirectional=True)
        self.crossed = crossed

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z = torch.tanh(y) if self.crossed else y
        return self.cells(self.attn(y, z, z)[0])[0]


def prepared(backend: str = "onnxruntime", **options: Any) -> Any:
    return prepare(Net(**options), backend, (torch.randn(2, 3, 8),))


def test_one_quantizer_for_one_tensor() -> None:
    q = prepared()
    assert q.attn.q_proj.input_fake_quant is not None
    assert q.attn.k_proj.input_fake_quant is q.attn.q_proj.input_fake_quant
    assert q.attn.v_proj.input_fake_quant is q.attn.q_proj.input_fake_quant
    first, second = q.cells.cells
    assert first.input.input_fake_quant is second.input.input_fake_quant
    assert first.hidden.input_fake_quant is not second.hidden.input_fake_quant


def test_two_for_two() -> None:
    q = prepared(crossed=True)
    assert q.attn.k_proj.input_fake_quant is q.attn.v_proj.input_fake_quant
    assert q.attn.k_proj.input_fake_quant is not q.attn.q_proj.input_fake_quant


def test_none_for_a_tensor_that_the_graph_quantizes() -> None:
    q = prepared("vitis")  # the output of 'first' is quantized for all who read it
    assert q.attn.q_proj.input_fake_quant is None
    assert q.attn.v_proj.input_fake_quant is None
    assert q.attn.out_proj.input_fake_quant is not None
