"""Layers of users that ignore the weights they are given, or bend what a batch norm scales."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import UnsupportedModelError  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402


class Own(nn.Linear):
    """The base of the layers here: Linear by another name."""

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_weights(x, self.weight, self.bias)


class Doubling(Own):
    """Twice the bias as well, so a folded bias would count twice."""

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return 2 * F.linear(x, weight, bias)


class Standardizing(Own):
    """No gain of a weight reaches the result."""

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight / weight.norm(dim=1, keepdim=True), bias)


class OwnWeight(Own):
    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, self.weight, bias)


class OwnBias(Own):
    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, self.bias)


class Random(Own):
    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x + 0.1 * torch.randn_like(x), weight, bias)


def patterns(kind: type[nn.Module]) -> list[tb.Pattern]:
    """A layer alone, and with a batch norm."""
    bare = type("QatBare", (qnn.QatLayer, kind), {})
    fused = type("Fused", (qnn.FusedLayer, kind), {})
    qat = type("FusedQat", (qnn.FusedQatLayer, kind), {})
    link = tb.Link("own", (kind,))
    norm = tb.Link("norm", (nn.BatchNorm1d,))
    return [
        tb.Pattern("alone", (link,), qat=bare),
        tb.Pattern("folded", (link, norm), fused=fused, qat=qat),
    ]


def prepared(kind: type[nn.Module], *after: nn.Module, x: Tensor | None = None) -> nn.Module:
    torch.manual_seed(0)
    x = torch.randn(4, 6) if x is None else x
    return tb.prepare(nn.Sequential(kind(6, 8), *after), "tensorrt", (x,), patterns=patterns(kind))


@pytest.mark.parametrize("kind", [Doubling, Standardizing, OwnWeight, OwnBias])
def test_a_fresh_batch_norm_hides_no_layer_that_it_cannot_be_folded_into(
    kind: type[nn.Module],
) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        prepared(kind, nn.BatchNorm1d(8))
    assert caught.value.what == (
        "'0' (a FusedQat, made by the pattern 'folded') is not linear in its weight and bias, so "
        "its batch norm cannot be folded into them"
    )
    assert "let apply_weights of FusedQat be linear" in caught.value.fix


@pytest.mark.parametrize(("kind", "name"), [(OwnWeight, "weight"), (OwnBias, "bias")])
def test_a_layer_that_ignores_what_it_is_given_is_named(kind: type[nn.Module], name: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        prepared(kind)
    assert caught.value.what == (
        f"'0' (a QatBare, made by the pattern 'alone') computes the same with any other {name}, so "
        f"the quantized {name} would be ignored"
    )
    assert caught.value.fix.endswith(f"compute with the {name} given, not with self.{name}")


@pytest.mark.parametrize("kind", [Own, Doubling, Standardizing])
def test_a_layer_alone_may_bend_its_weights(kind: type[nn.Module]) -> None:
    assert type(prepared(kind).get_submodule("0")).__name__ == "QatBare"


def test_a_linear_layer_is_folded() -> None:
    assert type(prepared(Own, nn.BatchNorm1d(8)).get_submodule("0")).__name__ == "FusedQat"


def test_what_cannot_be_told_is_not_refused() -> None:
    prepared(OwnWeight, x=torch.zeros(4, 6))
    prepared(Random, nn.BatchNorm1d(8))


def test_no_hook_is_left() -> None:
    model = prepared(Own, nn.BatchNorm1d(8))
    assert not any(module._forward_hooks for module in model.modules())
