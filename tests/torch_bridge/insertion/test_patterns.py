"""The table of patterns: what is in it, and how it is changed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.insertion.pattern import Link, Pattern  # noqa: E402
from torch_bridge.insertion.patterns import PATTERNS, RELU  # noqa: E402

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


def test_unknown_names_get_near_matches() -> None:
    with pytest.raises(OptionError, match="did you mean 'Conv2d"):
        PATTERNS.remove("Conv2D")
