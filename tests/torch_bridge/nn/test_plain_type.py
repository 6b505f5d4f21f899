"""Which layers compute as their base class."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

from torch_bridge.nn.plain_type import plain_type  # noqa: E402

KINDS = (nn.Linear, nn.Conv2d)


class Named(nn.Linear):
    def extra_repr(self) -> str:
        return "named"


class Cast(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.float())


class Padded(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input + 1, weight, bias)


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        (nn.Linear(2, 2), nn.Linear),
        (Named(2, 2), nn.Linear),
        (Cast(2, 2), None),
        (Padded(2, 2, 1), None),
        (nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), None),
        (nn.ReLU(), None),
    ],
)
def test_the_class_that_it_computes_as(module: nn.Module, kind: type | None) -> None:
    assert plain_type(module, KINDS) is kind


def test_a_layer_with_a_forward_of_its_own() -> None:
    class Mine(nn.Linear):
        pass

    layer = Mine(2, 2)
    layer.forward = lambda input: input  # type: ignore[method-assign]
    assert plain_type(layer, KINDS) is None
