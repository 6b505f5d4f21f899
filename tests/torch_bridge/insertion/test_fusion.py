"""Fusing chains of modules along FX graphs."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.torch_bridge.nn.layers import CASES, Case, Off  # noqa: E402
from tests.torch_bridge.traced import same, targets, traced  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.insertion import fusion  # noqa: E402

# -- chains --------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [None, nn.ReLU, nn.ReLU6])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_chain_of_modules(case: Case, frozen: bool, activation: type | None) -> None:
    norm = case.norm(case.args[1])
    if frozen:
        norm = getattr(qnn, f"Frozen{case.norm.__name__}").from_float(norm)
    model = nn.Sequential(case.make(), norm, *([activation()] if activation else []))
    graph = traced(copy.deepcopy(model))
    model.load_state_dict(graph.state_dict())
    end = activation.__name__ if activation else ""
    name = "+".join(filter(None, [case.stem, "BatchNorm", end]))
    assert fusion.fuse(graph) == [f"0 + 1{' + 2' if end else ''}: fused ({name})"]
    assert targets(graph) == ["0"]
    assert type(graph.get_submodule("0")) is case.fused
    assert set(graph.state_dict()) == {
        "0.bn." + key[2:] if key.startswith("1.") else key for key in model.state_dict()
    }
    same(model, graph, case.input())
    assert fusion.swap(graph, lambda layer, axis: Off()) == []
    assert type(graph.get_submodule("0")) is case.fused_qat
    same(model, graph, case.input())


class Functional(nn.Module):
    def __init__(self, activation: object) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.bn(self.conv(x))) + 1


@pytest.mark.parametrize(
    ("activation", "kind"),
    [
        (F.relu, nn.ReLU),
        (torch.relu, nn.ReLU),
        (lambda x: F.relu(x, inplace=True), nn.ReLU),
        (lambda x: F.relu(input=x), nn.ReLU),
        (lambda x: x.relu(), nn.ReLU),
        (lambda x: x.relu_(), nn.ReLU),
        (F.relu6, nn.ReLU6),
    ],
)
def test_activations_as_functions(activation: object, kind: type) -> None:
    model = Functional(activation)
    graph = traced(copy.deepcopy(model))
    model.load_state_dict(graph.state_dict())
    assert len(fusion.fuse(graph)) == 1
    assert targets(graph) == ["conv", "add"]
    assert type(graph.conv.activation) is kind
    same(model, graph, torch.randn(2, 3, 6, 6))


def test_a_layer_and_an_activation_without_batch_norm() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Sigmoid())
    graph = traced(model)
    assert fusion.fuse(graph) == ["0 + 1: fused (Linear+ReLU)"]
    assert targets(graph) == ["0", "2", "3"]


class SharedReLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.bn, self.relu = nn.BatchNorm2d(3), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn(self.a(x)))
        y = self.relu(self.b(y))
        return self.relu(y + x)


def test_one_relu_module_may_serve_many_layers() -> None:
    model = SharedReLU()
    graph = traced(copy.deepcopy(model))
    model.load_state_dict(graph.state_dict())
    assert fusion.fuse(graph) == [
        "a + bn + relu: fused (Conv2d+BatchNorm+ReLU)",
        "b + relu: fused (Conv2d+ReLU)",
    ]
    assert targets(graph) == ["a", "b", "add", "relu"]
    same(model, graph, torch.randn(2, 3, 4, 4))


def test_names_of_a_nested_model() -> None:
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU()),
        nn.Sequential(nn.ConvTranspose2d(4, 2, 2), nn.BatchNorm2d(2)),
    )
    graph = traced(copy.deepcopy(model))
    fusion.fuse(graph)
    assert targets(graph) == ["0.0", "1.0"]
    state = fusion.from_float_names(graph, model.state_dict())
    graph.load_state_dict(state)
    same(model, graph, torch.randn(2, 3, 4, 4))
    fusion.swap(graph, lambda layer, axis: Off())
    assert fusion.from_float_names(graph, model.state_dict()).keys() == state.keys()


# -- what is left, and why -----------------------------------------------------------------------


class Odd(nn.Module):
    """Batch norms that cannot be folded."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.conv = nn.Conv2d(4, 4, 1)
        self.bn = nn.BatchNorm2d(4, track_running_stats=how != "no statistics")

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if self.how == "other consumer":
            return F.relu(self.bn(y)) + y
        if self.how == "twice called layer":
            return self.bn(self.conv(y))
        if self.how == "twice called norm":
            return self.bn(self.bn(y))
        if self.how == "no layer":
            return self.bn(x * 2)
        if self.how == "graph output":
            return self.bn(y), y
        return self.bn(y)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("other consumer", "bn: batch norm left, 'conv' has other consumers: 'add'"),
        ("graph output", "bn: batch norm left, 'conv' has other consumers: 'output'"),
        ("twice called layer", "bn: batch norm left, 'conv' is called 2 times"),
        ("twice called norm", "bn: batch norm left, 'bn' is called 2 times"),
        (
            "no layer",
            "bn: batch norm left, its input 'mul' is not the result of a layer",
        ),
        ("no statistics", "bn: batch norm left, it keeps no running statistics"),
    ],
)
def test_a_batch_norm_that_stays_is_reported(how: str, reason: str) -> None:
    model = Odd(how)
    if how == "no statistics":
        graph = fx.symbolic_trace(copy.deepcopy(model))
    else:
        graph = traced(copy.deepcopy(model))
    model.load_state_dict(graph.state_dict(), strict=how != "no layer")
    before = targets(graph)
    report = fusion.fuse(graph)
    assert report[0].startswith(reason)
    assert targets(graph) == before
    same(model, graph, torch.randn(3, 4, 5, 5))


class Sequences(nn.Module):
    """A batch norm over positions, after a layer that makes features."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bn = nn.Linear(4, 6), nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.linear(x))


def test_a_batch_norm_over_another_dimension_stays() -> None:
    model = Sequences()
    graph = traced(copy.deepcopy(model))
    model.load_state_dict(graph.state_dict())
    report = fusion.fuse(graph)
    assert report == [
        "bn: batch norm left, it normalises 5 channels, but the layer computes 6",
    ]
    same(model, graph, torch.randn(3, 5, 4))


def test_a_batch_norm_whose_result_is_read_twice_takes_no_relu() -> None:
    class Fork(Functional):
        def forward(self, x: Tensor) -> Tensor:
            y = self.bn(self.conv(x))
            return F.relu(y) + y

    model = Fork(None)
    graph = traced(copy.deepcopy(model))
    model.load_state_dict(graph.state_dict())
    assert fusion.fuse(graph) == ["conv + bn: fused (Conv2d+BatchNorm)"]
    assert targets(graph) == ["conv", "relu", "add"]
    same(model, graph, torch.randn(2, 3, 5, 5))


def test_attributes_that_are_read_elsewhere_survive() -> None:
    class Peek(Functional):
        def forward(self, x: Tensor) -> Tensor:
            return self.bn(self.conv(x)) + self.bn.weight.sum() + self.conv.weight.sum()

    model = Peek(None)
    graph = traced(copy.deepcopy(model))
    model.load_state_dict({k: v for k, v in graph.state_dict().items() if ".bn." not in k})
    assert len(fusion.fuse(graph)) == 1
    same(model, graph, torch.randn(2, 3, 5, 5))


def test_fusing_twice_changes_nothing() -> None:
    graph = traced(SharedReLU())
    fusion.fuse(graph)
    before = targets(graph)
    assert fusion.fuse(graph) == []
    assert targets(graph) == before


def test_fused_models_are_copied_and_pickled() -> None:
    graph = traced(SharedReLU())
    fusion.fuse(graph)
    fusion.swap(graph, lambda layer, axis: Off())
    x = torch.randn(2, 3, 4, 4)
    expected = graph.eval()(x)
    assert torch.equal(copy.deepcopy(graph)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(graph.a))(x), graph.a(x))
