"""Rules of a placement on a graph: sources, boundaries, groups, signs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from onnxq.operators.placement import MOVES, Placement, kinds  # noqa: E402
from torch_bridge.insertion.rules import Rules  # noqa: E402


def rules(model: nn.Module, **more: object) -> Rules:
    placement = Placement(**{"inputs": kinds("Add Concat MatMul"), **more})  # type: ignore[arg-type]
    return Rules(fx.symbolic_trace(model), placement)


def named(model: nn.Module, **more: object) -> list[list[str]]:
    return [[n.name for n in spot.producers] for spot in rules(model, **more).spots()]


class Tree(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        left = torch.cat([a.flatten(), torch.tanh(b)])
        right = torch.cat([torch.tanh(b), c])
        return left + torch.relu(right)


def test_sources_are_looked_for_through_moves() -> None:
    found = rules(Tree(), moves=MOVES | {"Concat"})
    add = next(n for n in found.graph.nodes if n.name == "add")
    assert [n.name for n in found.sources(add.args[0])] == ["a", "tanh"]
    assert [n.name for n in found.sources(add.args[1])] == ["relu"]


def test_groups_join_what_unified_ops_read() -> None:
    class Chain(nn.Module):
        def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
            return torch.cat([a, b]) + torch.cat([b, c])

    more = {"inputs": kinds("Add"), "moves": MOVES | {"Concat"}}
    assert named(Chain(), **more) == [["a"], ["b"], ["c"]]
    assert named(Chain(), **more, unified=kinds("Concat")) == [["a", "b", "c"]]


def test_numbers_among_operands() -> None:
    class Scaled(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return (a + 1) + b

    assert named(Scaled()) == [["a"], ["b"], ["add"]]
    assert named(Scaled(), tensors_only=True) == [["b"], ["add"]]


def test_merged_and_untouched_pairs() -> None:
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Embedding(4, 2)

        def forward(self, ids: Tensor, a: Tensor) -> Tensor:
            return (self.rows(ids) + a) * a + a

    assert named(Pairs(), merged=frozenset({("Add", "Mul")})) == [["a"], ["rows"]]
    assert named(Pairs(), untouched=frozenset({("Add", "Embedding")})) == [["a"], ["mul"]]


def test_outputs_settle_behind_absorbed_functions() -> None:
    class Fork(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            total = a + b
            return torch.relu(total), torch.tanh(total)

    outputs = {"inputs": frozenset(), "outputs": kinds("Add")}
    assert named(Fork(), **outputs) == [["add"]]
    assert named(Fork(), **outputs, absorbed=kinds("Relu")) == [["add"], ["relu"]]


def test_the_ends_of_the_network() -> None:
    class Ends(nn.Module):
        def forward(self, a: Tensor, unused: Tensor) -> tuple[Tensor, Tensor]:
            return torch.tanh(a).flatten(), a

    nothing = {"inputs": frozenset()}
    assert named(Ends(), **nothing, graph_inputs=True) == [["a"]]
    assert named(Ends(), **nothing, graph_outputs=True) == [["tanh"]]


def test_boundary_layers() -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            first = self.layers[0](x.flatten(1))
            return self.layers[2](torch.relu(self.layers[1](first))).unsqueeze(0)

    found = rules(Three(), boundary_bits=8).boundary
    assert {n.name for n in found} == {"layers_0", "layers_2"}
    assert rules(Three()).boundary == set()


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (lambda x: torch.relu(x), True),
        (lambda x: F.max_pool2d(torch.relu(x), 2), True),
        (lambda x: torch.relu(x) + torch.sigmoid(x), True),
        (lambda x: torch.relu(x) + x, False),
        (lambda x: torch.relu(x) * -1, False),
        (lambda x: torch.relu(x) * 2, True),
        (lambda x: torch.add(torch.relu(x), torch.relu(-x), alpha=-1), False),
        (lambda x: F.softplus(x) + x.abs() * torch.exp(x), True),
        (lambda x: torch.maximum(torch.relu(x), torch.sigmoid(x)), True),
        (lambda x: F.pixel_shuffle(torch.relu(x), 2), True),
        (lambda x: torch.relu(x).mean(-1), True),
        (lambda x: torch.relu(x) - 1, False),
        (lambda x: F.interpolate(torch.relu(x), scale_factor=2), True),
        (lambda x: F.interpolate(torch.relu(x), scale_factor=2, mode="bicubic"), False),
        (lambda x: x, False),
    ],
)
def test_signs(form: object, expected: bool) -> None:
    class Form(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return form(x)  # type: ignore[operator]

    found = rules(Form())
    (out,) = found.outputs()
    assert found.never_negative(out) is expected


def test_weights_made_of_parameters_only() -> None:
    class Standardised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(2, 2, 1))

        def forward(self, x: Tensor, dynamic: Tensor) -> Tensor:
            kernel = self.kernel - self.kernel.mean()
            return F.conv1d(F.conv1d(x, kernel), dynamic)

    found = rules(Standardised(), inputs=kinds("Conv"))
    first, second = (n for n in found.graph.nodes if n.target is F.conv1d)
    assert found.weight_operand(first).name == "sub"
    assert found.weight_operand(second) is None
    assert [n.name for n in found.operands(second)] == ["conv1d", "dynamic"]
