"""Choosing parts of a model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from torch_bridge.capture.tracing import LeafTracer, TraceOptions  # noqa: E402
from torch_bridge.insertion.selectors import select  # noqa: E402


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.layer(x), x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.second = Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) * 2


@pytest.fixture
def traced() -> tuple[nn.Module, fx.Graph]:
    model, tracer = Model(), LeafTracer()
    tracer.start(TraceOptions(), ())
    return model, tracer.trace(model)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("first", {"first_layer", "add"}),
        ("first.layer", {"first_layer"}),
        ("*.layer", {"first_layer", "second_layer"}),
        ("add_?", {"add_1"}),
        ("add_1", {"add_1"}),
        (nn.Linear, {"first_layer", "second_layer"}),
        (Block, {"first_layer", "second_layer", "add", "add_1"}),
        (torch.add, {"add", "add_1"}),
        (["first.layer", "mul"], {"first_layer", "mul"}),
        ((), set()),
    ],
)
def test_forms(traced: tuple[nn.Module, fx.Graph], selector: object, names: set[str]) -> None:
    model, graph = traced
    chosen = select(selector, model, graph, "exclude")
    assert {n.name for n in graph.nodes if chosen.has_node(n)} == names


def test_a_node(traced: tuple[nn.Module, fx.Graph]) -> None:
    model, graph = traced
    node = next(n for n in graph.nodes if n.name == "mul")
    assert select(node, model, graph, "exclude").nodes == {"mul"}


def test_modules_below_a_chosen_one_are_chosen(traced: tuple[nn.Module, fx.Graph]) -> None:
    model, _ = traced
    chosen = select("first", model, None, "exclude")
    assert chosen.has_module("first.layer")
    assert not chosen.has_module("firsts")


@pytest.mark.parametrize("selector", ["frist", 3, nn.Conv2d, torch.sub])
def test_what_fits_nothing(traced: tuple[nn.Module, fx.Graph], selector: object) -> None:
    with pytest.raises(OptionError, match=r"^exclude: ") as caught:
        select([selector], *traced, "exclude")
    assert caught.value.fix


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("re:(first|third)", {"first_layer", "add"}),
        ("f*t", {"first_layer", "add"}),
        ("Add", {"add", "add_1"}),
        ("Linear", {"first_layer", "second_layer"}),
        ("Block", {"first_layer", "second_layer", "add", "add_1"}),
    ],
)
def test_forms_shared_with_settings(
    traced: tuple[nn.Module, fx.Graph], selector: str, names: set[str]
) -> None:
    model, graph = traced
    chosen = select(selector, model, graph, "exclude")
    assert {n.name for n in graph.nodes if chosen.has_node(n)} == names


def test_a_wrong_expression(traced: tuple[nn.Module, fx.Graph]) -> None:
    with pytest.raises(OptionError, match="not a regular expression"):
        select("re:(", *traced, "exclude")
