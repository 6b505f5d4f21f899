"""Functions that hide products, written out: the same numbers, with places for quantizers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from torch_bridge.capture.example_call import ExampleCall  # noqa: E402
from torch_bridge.capture.value_types import mark_values  # noqa: E402
from torch_bridge.insertion.product_functions import expand_products  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402


def expanded(model: nn.Module, *args: Tensor, of_activations: bool = True) -> fx.GraphModule:
    made = fx.symbolic_trace(model)
    mark_values(made, ExampleCall(model, args, None))
    expand_products(made, of_activations=of_activations)
    return made


class Attention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, **self.options)


BOOLEAN = torch.ones(5, 7, dtype=torch.bool).tril()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"attn_mask": BOOLEAN},
        {"attn_mask": torch.randn(5, 7)},
        {"scale": 0.3},
        {"enable_gqa": True},
    ],
    ids=["plain", "causal", "boolean mask", "additive mask", "scale", "grouped heads"],
)
def test_attention(options: dict[str, Any]) -> None:
    heads = 2 if "enable_gqa" in options else 4
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, heads, 7, 8), torch.randn(2, heads, 7, 6)
    model = Attention(**options)
    made = expanded(model, q, k, v)
    torch.testing.assert_close(made(q, k, v), model(q, k, v))
    targets = [n.target for n in made.graph.nodes]
    assert targets.count(torch.matmul) == 2
    assert F.scaled_dot_product_attention not in targets


def test_attention_with_dropout_drops() -> None:
    q = torch.randn(2, 4, 5, 8)
    made = expanded(Attention(dropout_p=0.5), q, q, q)
    assert not torch.equal(made(q, q, q), made(q, q, q))


def test_attention_stays_where_activations_are_not_multiplied_on_codes() -> None:
    q = torch.randn(2, 4, 5, 8)
    made = expanded(Attention(), q, q, q, of_activations=False)
    assert F.scaled_dot_product_attention in [n.target for n in made.graph.nodes]


@pytest.mark.parametrize("options", [{}, {"beta": 2.0, "alpha": 0.5}])
def test_a_sum_and_a_product(options: dict[str, float]) -> None:
    class Sum(nn.Module):
        def forward(self, c: Tensor, a: Tensor, b: Tensor) -> Tensor:
            return torch.addmm(c, a, mat2=b, **options)

    args = torch.randn(4), torch.randn(3, 5), torch.randn(5, 4)
    torch.testing.assert_close(expanded(Sum(), *args)(*args), Sum()(*args))


def test_a_product_with_a_parameter_is_a_layer() -> None:
    class Projected(nn.Module):
        """As in GPT-2: the weight has its inputs first."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 4))
            self.bias = nn.Parameter(torch.randn(4))
            self.other = nn.Parameter(torch.randn(4, 3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.addmm(self.bias, x, self.weight) @ self.other

    report = prepare(Projected(), "onnxruntime", (torch.randn(3, 6),)).onnxq_report
    assert report.summary() == "2 of 2 products quantized"
    weights = {row.tensor: row.what for row in report.rows if "weight_fake" in row.module}
    assert set(weights) == {"weight", "other"}
    assert "per channel (axis 0)" in weights["weight"]  # F.linear, with its weight transposed
    assert "per channel (axis 1)" in weights["other"]
