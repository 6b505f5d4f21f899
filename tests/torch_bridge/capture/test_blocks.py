"""Models whose own code depends on values: their blocks have graphs of their own."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

import torch_bridge as tb  # noqa: E402
from tests.zoo.hand_written import FunctionalAttention  # noqa: E402


class Plain(nn.Module):
    """FX can trace it: a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.again = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.again(torch.relu(self.layer(x)))


class Sized(nn.Module):
    """A branch on a size, which only torch.export follows."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = FunctionalAttention()
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] < 2:
            return x
        return x + self.attention(self.norm(x))


class ByValue(nn.Module):
    """A branch on a value: no tracer follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Plain(), Sized()])
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
            if x.mean() > 100:
                x = x / 2
        return self.head(x)


def prepared(backend: str = "onnxruntime", **options: Any) -> tuple[nn.Module, Any, Tensor]:
    torch.manual_seed(0)
    model, x = ByValue(), torch.randn(2, 6, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model, tb.prepare(model, backend, (x,), **options), x


def test_blocks_are_captured_each_by_the_first_way_that_can() -> None:
    model, q, x = prepared()
    report = q.onnxq_report
    assert report.capture == "modules"
    assert "'blocks.0' is a graph of its own, captured by torch.fx" in report.notes
    assert "'blocks.1' is a graph of its own, captured by torch.export" in report.notes
    assert report.summary() == "7 of 7 products quantized"
    assert {"blocks.0.layer", "blocks.1.attention.qkv", "head"} <= {p.name for p in report.products}
    rows = {row.module for row in report.rows}
    assert {"blocks.0.layer.weight_fake_quant", "head.input_fake_quant"} <= rows
    torch.testing.assert_close(q.eval()(x), model.eval()(x))
    assert set(tb.float_state(q)) == set(model.state_dict())


def test_trained_copied_and_deployed(tmp_path: Path) -> None:
    _, q, x = prepared()
    with tb.calibrating(q):
        q(x)
    tb.enable_quantization(q)
    q.train()(x).square().mean().backward()
    missing = [n for n, p in q.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing
    q.eval()
    again = copy.deepcopy(q)
    torch.testing.assert_close(again(x), q(x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the branch is fixed in the file
        assert tb.deploy(q, (x,), tmp_path).proven


def test_rules_reach_into_blocks() -> None:
    _, q, _ = prepared(
        settings=[("blocks.0.again", "float"), ("blocks.1.attention.out", {"bits": 4})],
        exclude=["blocks.0.layer"],
    )
    told = q.onnxq_report.summary()
    assert told.startswith("5 of 7 products quantized; float as asked:")
    assert q.get_submodule("blocks.1.attention.out").weight_fake_quant.spec.hi == 7


def test_without_a_graph_if_asked() -> None:
    _, q, _ = prepared(capture="modules")
    assert not [n for n in q.onnxq_report.notes if "graph of its own" in n]


def test_a_part_that_no_tracer_enters_has_blocks_too() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.body = nn.Linear(16, 16), ByValue()

        def forward(self, x: Tensor) -> Tensor:
            return self.body(torch.relu(self.stem(x)) + x)

    model, x = Around(), torch.randn(2, 6, 16)
    with pytest.warns(UserWarning, match="could not be traced: 'body'"):
        q: Any = tb.prepare(model, "onnxruntime", (x,))
    report = q.onnxq_report
    assert report.traced
    assert "'body.blocks.1' is a graph of its own, captured by torch.export" in report.notes
    assert report.summary() == "8 of 8 products quantized"
    torch.testing.assert_close(q.eval()(x), model.eval()(x))
    with pytest.warns(UserWarning, match="could not be traced: 'body'"):
        again = tb.prepare(model, example_inputs=(x,), settings=tb.recipe(q))
    assert again.state_dict().keys() == q.state_dict().keys()
