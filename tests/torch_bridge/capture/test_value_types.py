"""Which nodes hold float tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402

from torch_bridge.capture.example_call import ExampleCall  # noqa: E402
from torch_bridge.capture.value_types import MADE_ZERO, is_float, mark_values  # noqa: E402


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: Tensor, ids: Tensor, *more: Tensor, **named: Tensor) -> tuple:
        size = x.shape[0] + 1
        parts = x.chunk(2, 1)
        return self.norm(x), ids + 1, size, parts, more[0], named["a"]


def test_nodes_are_marked_by_what_they_hold() -> None:
    model = Mixed().train()
    made = fx.symbolic_trace(model)
    before = model.norm.running_mean.clone()
    x, ids = torch.randn(4, 2), torch.zeros(3, dtype=torch.long)
    mark_values(made, ExampleCall(model, (x, ids, x), {"a": x}))
    held = {n.name: is_float(n) for n in made.graph.nodes if n.op != "output"}
    floats = {name for name, yes in held.items() if yes}
    assert {"x", "norm"} <= floats
    assert {"ids", "add", "chunk", "more", "named"}.isdisjoint(floats)
    assert len(floats) == 4, "and the two items that are picked"
    assert torch.equal(model.norm.running_mean, before)
    assert made.norm.training


def test_new_nodes_count_as_float() -> None:
    assert is_float(fx.Graph().placeholder("x"))


def test_zeros_of_the_network_itself() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.Linear(4, 4)
            nn.init.zeros_(self.branch.weight)
            nn.init.zeros_(self.branch.bias)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + self.branch(x) * 2 + y * 3

    model = Residual()
    x, zeros = torch.randn(2, 4), torch.zeros(2, 4)
    made = fx.symbolic_trace(model)
    mark_values(made, ExampleCall(model, (x, zeros), None))
    marked = [n.name for n in made.graph.nodes if n.meta[MADE_ZERO]]
    assert marked == ["branch", "mul"]  # not y, whose zeros are those of the example
