"""A module of another class with the same parameters."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from torch_bridge.nn.adopt import adopt  # noqa: E402


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def test_parameters_are_the_same_objects() -> None:
    source = nn.Linear(3, 4)
    made = adopt(Doubled, source)
    assert type(made) is Doubled
    assert made.weight is source.weight
    assert made.in_features == 3
    x = torch.randn(2, 3)
    assert torch.equal(made(x), 2 * source(x))


def test_changes_do_not_reach_the_source() -> None:
    source = nn.Linear(3, 4)
    made = adopt(Doubled, source)
    made.child = nn.ReLU()
    made.bias = None
    made.register_buffer("extra", torch.zeros(1))
    made.eval()
    assert not list(source.children())
    assert source.bias is not None
    assert set(source.state_dict()) == {"weight", "bias"}
    assert source.training


def test_hooks_mode_and_attributes_come_along() -> None:
    source = nn.Linear(3, 4).eval()
    source.tag = "head"
    seen = []
    source.register_forward_hook(lambda module, args, result: seen.append(type(module)))
    made = adopt(Doubled, source)
    made(torch.randn(2, 3))
    assert seen == [Doubled]
    assert made.tag == "head"
    assert not made.training
