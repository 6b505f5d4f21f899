"""One pattern: what it needs, and what it matches."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.insertion.pattern import Link, Pattern  # noqa: E402
from torch_bridge.insertion.patterns import RELU  # noqa: E402

LINEAR = Link("Linear", (nn.Linear,))


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
    with pytest.raises(OptionError, match="Module has no op kind"):
        Pattern("Linear", (LINEAR,), qat=nn.Module)


def test_a_pattern_in_words() -> None:
    chain = Pattern(
        "Linear+ReLU",
        (LINEAR, RELU),
        qat=qnn.FusedQatLinear,
        fused=qnn.FusedLinear,
        backends=("tensorrt", "chip"),
    )
    assert str(chain) == "Linear, ReLU: trained as FusedQatLinear for tensorrt, chip"
