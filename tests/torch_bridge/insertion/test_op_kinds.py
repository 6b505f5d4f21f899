"""Kinds of modules, functions and methods."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from onnxq.operators.placement import KINDS  # noqa: E402
from torch_bridge.insertion.op_kinds import (  # noqa: E402
    FUNCTIONS,
    METHODS,
    MODULES,
    ends_not_negative,
    kind_of,
    module_kind,
)
from torch_bridge.nn import FusedConv2d, QatConv2d, QatLinear  # noqa: E402


def test_the_tables_use_the_words_of_placements() -> None:
    named = {*MODULES.values(), *FUNCTIONS.values(), *METHODS.values()}
    assert named <= KINDS


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (QatConv2d, "Conv"),
        (FusedConv2d, "Conv"),
        (QatLinear, "Linear"),
        (nn.ReLU6, "Clip"),
        (nn.LSTM, None),
        (nn.Sequential, None),
    ],
)
def test_modules_go_by_their_nearest_known_class(kind: type, expected: str | None) -> None:
    assert module_kind(kind.__new__(kind)) == expected


class Ops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.clip = nn.Hardtanh(0.0, 4.0)

    def forward(self, x: Tensor) -> list[Tensor]:
        left, right = torch.split(x, 2)
        return [
            left,
            right,
            F.pad(x, (1, 1)),
            F.pad(x, (1, 1), value=1.0),
            F.pad(x, (1, 1), mode="reflect"),
            x.clamp(min=0),
            x.clamp(-1, 1),
            F.relu6(x),
            self.clip(x),
            torch.tanh(x),
        ]


def test_nodes() -> None:
    made = fx.symbolic_trace(Ops())
    modules = dict(made.named_modules())
    nodes = [n for n in made.graph.nodes if n.op not in ("placeholder", "output")]
    assert [kind_of(n, modules) for n in nodes] == [
        *("Split", "Identity", "Identity", "Pad", None, "Pad"),
        *("Clip", "Clip", "Clip", "Clip", "Tanh"),
    ]
    assert [ends_not_negative(n, modules) for n in nodes[6:]] == [True, False, True, True, False]
