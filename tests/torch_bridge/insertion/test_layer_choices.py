"""Ordered rules on the modules and nodes of a model."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from onnxq.quant.settings import Settings  # noqa: E402
from torch_bridge.capture.tracing import LeafTracer, TraceOptions  # noqa: E402
from torch_bridge.insertion.layer_choices import FloatParts, LayerChoices  # noqa: E402
from torch_bridge.insertion.selectors import parts_of, select  # noqa: E402


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.two(self.one(x)), x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = Block(), Block(), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.head(self.second(self.first(x))))


@pytest.fixture
def traced() -> tuple[nn.Module, fx.Graph]:
    model, tracer = Net(), LeafTracer()
    tracer.start(TraceOptions(), ())
    return model, tracer.trace(model)


def bits(traced: tuple[nn.Module, fx.Graph], *rules: Any) -> dict[str, int]:
    """The bits of each node that has some; 0 for float."""
    choices = LayerChoices(Settings.of(rules), parts_of(*traced))
    found = {n.name: choices.of_node(n) for n in traced[1].nodes}
    return {
        name: 0 if each.float else each.activation_bits
        for name, each in found.items()
        if each.float or each.activation_bits
    }


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ([["first", "float"]], {"first_one": 0, "first_two": 0, "add": 0}),
        (
            [["first.one", {"bits": 4}], ["first", "float"]],
            {"first_one": 4, "first_two": 0, "add": 0},
        ),
        (
            [["first", "float"], ["first.one", {"bits": 4}]],
            {"first_one": 0, "first_two": 0, "add": 0},
        ),
        ([["*.one", {"bits": 4}]], {"first_one": 4, "second_one": 4}),
        ([["re:(first|second)\\.two", {"bits": 3}]], {"first_two": 3, "second_two": 3}),
        ([[torch.add, "float"]], {"add": 0, "add_1": 0}),
        ([["Add", "float"]], {"add": 0, "add_1": 0}),
        ([["add_1", "float"]], {"add_1": 0}),
        ([["head_1", "float"]], {"head_1": 0}),
        ([["head", "float"]], {"head": 0, "head_1": 0}),
        (
            [["second", {"bits": 5}], [Block, {"bits": 4}]],
            {
                **{"first_one": 4, "first_two": 4, "add": 4},
                **{"second_one": 5, "second_two": 5, "add_1": 5},
            },
        ),
        (
            [["head", {"bits": 8}], [nn.Linear, "float"]],
            {
                **{"first_one": 0, "first_two": 0, "second_one": 0, "second_two": 0},
                **{"head": 8, "head_1": 8},
            },
        ),
        (
            [["Block", "float"], ["Linear", {"bits": 6}]],
            {
                **{"first_one": 0, "first_two": 0, "add": 0},
                **{"second_one": 0, "second_two": 0, "add_1": 0},
                **{"head": 6, "head_1": 6},
            },
        ),
    ],
)
def test_the_first_rule_that_matches_decides(
    traced: tuple[nn.Module, fx.Graph], rules: list[Any], found: dict[str, int]
) -> None:
    assert bits(traced, *rules) == found


def test_modules_have_settings_of_their_own(traced: tuple[nn.Module, fx.Graph]) -> None:
    rules = Settings.of([["first.one", {"bits": 4}], ["first", "float"]])
    choices = LayerChoices(rules, parts_of(*traced))
    assert choices.of_module("first.one").weight_bits == 4
    assert choices.of_module("first.two").float
    assert choices.of_module("second.one").weight_bits is None
    parts = FloatParts(select("second", *traced, "exclude"), choices)
    assert {p for p, _ in traced[0].named_modules() if p and parts.has_module(p)} == {
        *("first", "first.two", "second", "second.one", "second.two")
    }
    assert {n.name for n in traced[1].nodes if parts.has_node(n)} == {
        *("first_two", "add", "second_one", "second_two", "add_1")
    }


def test_a_module_with_two_names_is_found_by_both() -> None:
    model = nn.Module()
    model.left = model.right = nn.Linear(2, 2)
    choices = LayerChoices(Settings.of([["right", "float"]]), parts_of(model, None))
    assert choices.of_module("left").float


@pytest.mark.parametrize(
    ("selector", "near"),
    [("frist", "first"), (nn.Conv2d, "did you mean"), (torch.addmm, "add"), ("re:haed", "head")],
)
def test_a_rule_without_a_match(
    traced: tuple[nn.Module, fx.Graph], selector: Any, near: str
) -> None:
    with pytest.raises(OptionError, match=r"^settings: no layer matches '") as caught:
        bits(traced, [selector, "float"])
    assert near in caught.value.fix
