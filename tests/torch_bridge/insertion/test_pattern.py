"""One pattern: what it needs, and what it matches."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.insertion.pattern import Link, Pattern  # noqa: E402
from torch_bridge.insertion.patterns import RELU  # noqa: E402

LINEAR = Link("Linear", (nn.Linear,))


class Mine(nn.Module):
    """A layer that derives from no layer of torch and has no operator."""


class Bare(qnn.QatLayer):
    """A quantized form of no layer."""

    def forward(self, input: Tensor) -> Tensor:
        return input


class Late(nn.Linear, qnn.QatLayer):
    """Its forward is that of Linear."""


class LateFused(nn.Linear, qnn.FusedLayer):
    """Its forward is that of Linear."""


class Idle(qnn.QatLayer, Mine):
    """Has no operator to call."""


@pytest.mark.parametrize(
    ("chain", "fused"), [((LINEAR, RELU), None), ((LINEAR,), qnn.FusedLinear), ((), None)]
)
def test_half_patterns_are_refused(chain: tuple[Link, ...], fused: type | None) -> None:
    with pytest.raises(OptionError, match="pattern 'half'"):
        Pattern("half", chain, qat=qnn.QatLinear, fused=fused)


def test_a_layer_without_an_op_kind_is_refused() -> None:
    """No backend would ever quantize it."""
    link = Link("Bilinear", (nn.Bilinear,))
    with pytest.raises(OptionError, match="Bilinear has no op kind") as caught:
        Pattern("Bilinear", (link,), qat=qnn.QatLinear)
    assert "register_op_kind(Bilinear" in str(caught.value.fix)
    with pytest.raises(OptionError, match="Bare has no op kind"):
        Pattern("Linear", (LINEAR,), qat=Bare)


def test_a_pattern_in_words() -> None:
    chain = Pattern(
        "Linear+ReLU",
        (LINEAR, RELU),
        qat=qnn.FusedQatLinear,
        fused=qnn.FusedLinear,
        backends=("tensorrt", "chip"),
    )
    assert str(chain) == "Linear, ReLU: trained as FusedQatLinear for tensorrt, chip"


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        ({"types": nn.Conv2d}, "classes"),
        ({"types": ()}, "classes"),
        ({"types": (F.relu,)}, "classes"),
        ({"functions": ("relu",)}, "functions"),
        ({"functions": F.relu}, "functions"),
        ({"methods": "relu"}, "names of methods"),
        ({"made": nn.ReLU()}, ""),
        ({"made": 3}, "a function"),
    ],
)
def test_a_wrong_link_is_refused(wrong: dict[str, Any], fix: str) -> None:
    given = {"types": (nn.ReLU,), **wrong}
    if not fix:
        Link("mine", **given)
        return
    with pytest.raises(OptionError, match="link 'mine'") as caught:
        Link("mine", **given)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        ({"chain": LINEAR}, "a tuple of Links"),
        ({"chain": (nn.Linear,)}, "a tuple of Links"),
        ({"backends": "tensorrt"}, "a tuple of names"),
        ({"qat": nn.Module}, "derive it from torch_bridge.nn.QatLayer"),
        ({"qat": qnn.FusedLinear}, "derive `qat` from torch_bridge.nn.QatLayer"),
        ({"qat": Late}, "QatLayer must come first among the bases of Late"),
        ({"qat": Idle}, "define apply_weights(self, x, weight, bias) in Linear"),
    ],
)
def test_a_wrong_pattern_is_refused(wrong: dict[str, Any], fix: str) -> None:
    with pytest.raises(OptionError, match="pattern 'mine'") as caught:
        Pattern("mine", **{"chain": (LINEAR,), "qat": qnn.QatLinear, **wrong})
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("fused", "qat", "fix"),
    [
        (qnn.FusedQatLinear, qnn.FusedLinear, "`fused` and `qat` are swapped"),
        (qnn.FusedQatLinear, qnn.FusedQatLinear, "derive `fused` from torch_bridge.nn.FusedLayer"),
        (LateFused, qnn.FusedQatLinear, "FusedLayer must come first among the bases of LateFused"),
    ],
)
def test_wrong_forms_are_refused(fused: type, qat: type, fix: str) -> None:
    with pytest.raises(OptionError, match="pattern 'mine'") as caught:
        Pattern("mine", (LINEAR, RELU), fused=fused, qat=qat)
    assert fix in caught.value.fix


def _raising(*_: object) -> nn.Module:
    raise ValueError("no")


@pytest.mark.parametrize(("made", "what"), [(_raising, "ValueError: no"), (lambda: None, "None")])
def test_a_module_that_cannot_be_made_is_told(made: Any, what: str) -> None:
    link = Link("mine", (nn.ReLU,), functions=(F.relu,), made=made)
    graph = fx.Graph()
    node = graph.call_function(F.relu, (graph.placeholder("x"),))
    with pytest.raises(OptionError, match="link 'mine'") as caught:
        link.module(node, {})
    assert what in caught.value.what


def test_a_chain_holds_a_layer() -> None:
    with pytest.raises(OptionError, match="pattern 'none' has an empty chain"):
        Pattern("none", (), fused=qnn.FusedConv2d, qat=qnn.FusedQatConv2d)
