"""The ways to capture a model: which one is taken, why, and that all give the same model."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402

from onnxq.errors import OptionError, UnsupportedModelError  # noqa: E402
from tests.torch_bridge.capture.hard_models import DataDependent, Yolo  # noqa: E402
from tests.torch_bridge.models import ResNet18  # noqa: E402
from tests.zoo.hand_written import MODELS, Branches, FunctionalAttention, Tied  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import calibrating, quantizing  # noqa: E402

IMAGE = torch.randn(2, 3, 32, 32)


def prepared(model: nn.Module, args: Any, how: str = "auto", backend: str = "onnxruntime") -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare(model, backend, args, capture=how)


@pytest.mark.parametrize(
    ("model", "args", "rung"),
    [
        (ResNet18(), (IMAGE,), "fx"),
        (Branches(), (torch.randn(2, 3, 8, 8),), "export"),
        (Yolo(), (IMAGE,), "fx"),
        (DataDependent(), (torch.randn(2, 8),), "modules"),
        (nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), (torch.randn(2, 3, 8),), "export"),
    ],
    ids=["traced by FX", "a branch on a size", "no better by export", "a value", "of torch"],
)
def test_the_first_way_that_can(model: nn.Module, args: Any, rung: str) -> None:
    report = prepared(model, args).onnxq_report
    assert report.capture == rung
    assert bool(report.capture_reason) is (rung != "fx" or bool(report.leaves))


@fx.wrap
def projected(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, weight)


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return projected(x, self.layer.weight)


def test_a_function_that_hides_a_product_from_fx_is_opened() -> None:
    report = prepared(Wrapped(), (torch.randn(2, 8),)).onnxq_report
    assert report.capture == "export"
    assert "fx.wrap" in report.capture_reason
    assert report.summary() == "1 of 1 products quantized"


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "academic"])
@pytest.mark.parametrize(
    ("make", "args"),
    [
        (ResNet18, (IMAGE,)),
        (FunctionalAttention, (torch.randn(2, 6, 16),)),
        (Tied, (torch.randint(0, 20, (2, 6)),)),
    ],
    ids=["convolutions", "attention", "tied weights"],
)
def test_both_graphs_give_the_same_quantized_model(make: Any, args: Any, backend: str) -> None:
    torch.manual_seed(0)
    model = make()
    results, rows = [], []
    for how in ("fx", "export"):
        q = prepared(model, args, how, backend)
        assert q.onnxq_report.capture == how
        with calibrating(q.eval()), torch.no_grad():
            q(*args)
        with quantizing(q), torch.no_grad():
            results.append(q(*args))
        rows.append({(row.module, row.what) for row in q.onnxq_report.rows})
    assert rows[0] == rows[1]
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_a_way_that_was_asked_for_is_taken() -> None:
    args = (torch.randn(2, 3, 8, 8),)
    assert prepared(Branches(), args, "modules").onnxq_report.capture == "modules"
    assert prepared(ResNet18(), (IMAGE,), "export").onnxq_report.capture == "export"
    forced = prepared(Branches(), args, "fx").onnxq_report
    assert forced.capture == "modules"
    assert forced.leaves[0].path == ""


def test_export_alone_refuses_what_it_cannot_capture() -> None:
    with pytest.raises(UnsupportedModelError, match=r"torch\.export cannot capture DataDependent"):
        prepared(DataDependent(), (torch.randn(2, 8),), "export")


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(OptionError, match="capture='exprot' is not a way"):
        prepared(Branches(), (torch.randn(2, 3, 8, 8),), "exprot")
    with pytest.raises(OptionError, match=r"options of torch\.fx"):
        prepare(ResNet18(), "tensorrt", (IMAGE,), capture="export", tracer=fx.Tracer)


def test_wrong_inputs_are_named_in_every_way() -> None:
    for how in ("auto", "fx", "export", "modules"):
        with pytest.raises(OptionError, match="fails on the example inputs"):
            prepared(Branches(), (torch.randn(2, 4, 8, 8),), how)


def test_settings_by_path_hold_in_an_exported_graph() -> None:
    model, args, kwargs = MODELS["config"]()
    q = prepare(model, "onnxruntime", args, kwargs, settings=[("layers.0.*", {"float": True})])
    names = {row.module for row in q.onnxq_report.rows}
    assert "layers.1.qkv.weight_fake_quant" in names
    assert not any(name.startswith("layers.0.") for name in names)


@pytest.mark.parametrize("name", MODELS)
def test_hard_models_are_quantized_in_every_product(name: str) -> None:
    model, args, kwargs = MODELS[name]()
    report: Any = prepare(model, "onnxruntime", args, kwargs).onnxq_report
    assert report.products
    assert not any(product.float_reason for product in report.products), report.summary()
