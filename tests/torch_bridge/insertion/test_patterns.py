"""The table of patterns: what is in it, and how it is changed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import OptionError  # noqa: E402
from tests.torch_bridge import registries  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.insertion.pattern import Link, Pattern  # noqa: E402
from torch_bridge.insertion.patterns import PATTERNS, RELU  # noqa: E402

LINEAR = Link("Linear", (nn.Linear,))
LEAKY = Link("LeakyReLU", (nn.LeakyReLU,), functions=(F.leaky_relu,))
PLAIN = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear)
CHAIN = Pattern("Linear+ReLU", (LINEAR, RELU), qat=qnn.FusedQatLinear, fused=qnn.FusedLinear)


def test_every_layer_is_there_with_every_end() -> None:
    names = {pattern.name for pattern in PATTERNS.of()}
    ends = ("", "+BatchNorm", "+ReLU", "+ReLU6", "+BatchNorm+ReLU", "+BatchNorm+ReLU6")
    layers = [f"Conv{t}{n}d" for t in ("", "Transpose") for n in (1, 2, 3)] + ["Linear"]
    assert names == {layer + end for layer in layers for end in ends} | {"Embedding"}


def test_longest_chains_come_first() -> None:
    lengths = [len(pattern.chain) for pattern in PATTERNS.of("tensorrt")]
    assert lengths == sorted(lengths, reverse=True)


def test_unknown_names_get_near_matches() -> None:
    with pytest.raises(OptionError, match="did you mean 'Conv2d"):
        PATTERNS.remove("Conv2D")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"backends": ("tensort",)}, "it is for tensort only (did you mean 'tensorrt'"),
        ({"chain": (LINEAR, Link("GELU", (nn.GELU,)))}, "the model holds no GELU"),
        ({"chain": (LINEAR, LEAKY)}, "no Linear, LeakyReLU in a row"),
        ({"chain": (LINEAR, RELU)}, ""),
    ],
)
def test_a_given_pattern_that_matches_nothing_is_told(given: dict[str, Any], why: str) -> None:
    forms = {"fused": qnn.FusedLinear, "qat": qnn.FusedQatLinear}
    pattern = Pattern("mine", **{"chain": (LINEAR, RELU), **forms, **given})
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    notes = tb.prepare(net, "tensorrt", (torch.randn(2, 4),), patterns=[pattern]).onnxq_report.notes
    told = [note for note in notes if "matched nothing" in note]
    assert len(told) == bool(why)
    assert all("'mine'" in note and why in note for note in told)


def test_a_layer_of_its_own_has_the_axis_of_its_kind() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 3, 3, 3))
            self.bias = nn.Parameter(torch.randn(8))

        def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return F.conv2d(x, weight, bias)

        def forward(self, x: Tensor) -> Tensor:
            return self.apply_weights(x, self.weight, self.bias)

    class QatMine(qnn.QatLayer, Mine):
        pass

    with registries.restored():
        tb.register_op_kind(Mine, "Conv")
        pattern = Pattern("Mine", (Link("Mine", (Mine,)),), qat=QatMine)
        q = tb.prepare(
            nn.Sequential(Mine()), "tensorrt", (torch.randn(1, 3, 5, 5),), patterns=[pattern]
        )
    assert q.get_submodule("0").weight_fake_quant.spec.axis == 0
