"""The table of patterns: what is in it, and how it is changed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.insertion.patterns import PATTERNS, RELU, Link, Pattern, PatternTable  # noqa: E402

LINEAR = Link("Linear", (nn.Linear,))
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


def test_names_are_given_once() -> None:
    table = PatternTable()
    table.add(PLAIN)
    with pytest.raises(OptionError, match="a pattern 'Linear' exists already"):
        table.add(PLAIN)
    other = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear, axis=lambda layer: None)
    table.add(other, replace=True)
    assert table.of() == (other,)


def test_a_backend_overrides_adds_and_removes() -> None:
    table = PatternTable()
    table.add(PLAIN)
    table.add(CHAIN)
    own = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear, axis=lambda layer: None)
    table.add(own, backend="chip")
    table.remove("Linear+ReLU", backend="chip")
    assert table.of("chip") == (own,)
    assert table.of() == table.of("another") == (CHAIN, PLAIN)
    extra = Pattern("Conv1d", (Link("Conv1d", (nn.Conv1d,)),), qat=qnn.QatConv1d)
    table.add(extra, backend="chip")
    assert extra in table.of("chip")
    table.remove("Conv1d", backend="chip")
    assert table.of("chip") == (own,)
    table.remove("Linear+ReLU")
    assert table.of() == (PLAIN,)


def test_unknown_names_get_near_matches() -> None:
    with pytest.raises(OptionError, match="did you mean 'Conv2d"):
        PATTERNS.remove("Conv2D")


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
    assert "MODULES[Bilinear]" in str(caught.value.fix)
    with pytest.raises(OptionError, match="Module has no op kind"):
        Pattern("Linear", (LINEAR,), qat=nn.Module)
