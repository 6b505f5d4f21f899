"""Functions become modules with the arguments of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from torch_bridge.insertion.call_arguments import module_of_call  # noqa: E402
from torch_bridge.insertion.patterns import PATTERNS  # noqa: E402

X = torch.linspace(-8, 8, 40).reshape(4, 10)


def slanted(x: Tensor, slope: float = 0.3) -> Tensor:
    return torch.where(x < 0, x * slope, x)


fx.wrap("slanted")


class Slanted(nn.Module):
    def __init__(self, slope: float = 0.1) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return slanted(x, self.slope)


def called(program: Callable[[Tensor], Tensor]) -> fx.Node:
    """The node of the one call in a program."""

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return program(x)

    calls = [n for n in fx.symbolic_trace(Model()).graph.nodes if n.op.startswith("call")]
    assert len(calls) == 1
    return calls[0]


SAME: dict[str, tuple[type[nn.Module], Callable[[Any], Any]]] = {
    "position": (nn.LeakyReLU, lambda x: F.leaky_relu(x, 0.2)),
    "keyword": (nn.LeakyReLU, lambda x: F.leaky_relu(x, negative_slope=0.2)),
    "default": (nn.LeakyReLU, lambda x: F.leaky_relu(x)),
    "in place": (nn.LeakyReLU, lambda x: F.leaky_relu(x, 0.3, False)),
    "two": (nn.Hardtanh, lambda x: F.hardtanh(x, -2.0, max_val=3.0)),
    "elu": (nn.ELU, lambda x: F.elu(x, alpha=0.5)),
    "celu": (nn.CELU, lambda x: torch.celu(x, 0.7)),
    "gelu": (nn.GELU, lambda x: F.gelu(x, approximate="tanh")),
    "softmax": (nn.Softmax, lambda x: F.softmax(x, dim=1)),
    "method": (nn.Softmax, lambda x: x.softmax(-1)),
    "relu": (nn.ReLU, lambda x: F.relu(x, inplace=False)),
    "relu6": (nn.ReLU6, lambda x: F.relu6(x)),
    "softplus": (nn.Softplus, lambda x: F.softplus(x, 2, 1.5)),
    "threshold": (nn.Threshold, lambda x: F.threshold(x, 0.5, -1.0)),
    "own": (Slanted, lambda x: slanted(x)),
    "own slope": (Slanted, lambda x: slanted(x, 0.7)),
}


@pytest.mark.parametrize("case", SAME)
def test_a_module_computes_what_the_call_does(case: str) -> None:
    kind, program = SAME[case]
    made = module_of_call(called(program), kind)
    assert type(made) is kind
    assert torch.equal(made(X), program(X))


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        (nn.LeakyReLU, lambda x: F.leaky_relu(x, x.sum())),
        (nn.ReLU, lambda x: F.leaky_relu(x, 0.2)),
        (nn.Softmax, lambda x: F.softmax(x, dim=1, dtype=torch.float64)),
        (nn.Hardtanh, lambda x: x.clamp(min=0, max=4)),
        (nn.Dropout, lambda x: F.dropout(x, 0.5, True)),
        (nn.ReLU, lambda x: torch.clamp(x, 0, 6)),
    ],
)
def test_arguments_without_a_place_are_no_match(
    kind: type[nn.Module], program: Callable[[Tensor], Tensor]
) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return program(x)

    node = [n for n in fx.symbolic_trace(Model()).graph.nodes if n.op.startswith("call")][-1]
    assert module_of_call(node, kind) is None


def test_other_names_are_translated() -> None:
    node = called(lambda x: x.clamp(min=0, max=4))
    made = module_of_call(node, nn.Hardtanh, lambda min, max: nn.Hardtanh(min, max))
    assert torch.equal(made(X), X.clamp(0, 4))
    assert module_of_call(called(lambda x: x.clamp(0)), nn.Hardtanh, nn.Hardtanh) is not None
    one_sided = called(lambda x: x.clamp(min=0))
    assert module_of_call(one_sided, nn.Hardtanh, lambda min, max: nn.Hardtanh(min, max)) is None


def test_every_function_of_the_built_in_patterns_is_carried() -> None:
    links = {link for pattern in PATTERNS.of() for link in pattern.chain if link.functions}
    assert {link.name for link in links} == {"ReLU", "ReLU6"}
    for link in links:
        for function in link.functions:
            node = called(lambda x, f=function: f(x))
            assert torch.equal(link.module(node, {})(X.clone()), function(X.clone()))
        for method in link.methods:
            node = called(lambda x, m=method: getattr(x, m)())
            assert torch.equal(link.module(node, {})(X.clone()), getattr(X.clone(), method)())
