"""The quantizers by name: how a tensor is rounded in training, and which parameters learn.

A new algorithm is one file in this folder with a subclass of `FakeQuantize` that has a name in
`algorithm`. Other packages add theirs by the entry points `onnxq.algorithms`, programs by
`register_algorithm`.
"""

from __future__ import annotations

from typing import TypeVar

from onnxq.discovery import ALGORITHMS_GROUP
from torch_bridge.arithmetic.functional import Rounding, fake_quantize
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant.base import FakeQuantize
from torch_bridge.fake_quant.own_algorithm import check_algorithm
from torch_bridge.registry import Registry, in_package

__all__ = [
    "ALGORITHMS",
    "FakeQuantize",
    "QuantizerSpec",
    "Rounding",
    "algorithm",
    "fake_quantize",
    "register_algorithm",
]

Q = TypeVar("Q", bound=type[FakeQuantize])

ALGORITHMS: Registry[FakeQuantize] = Registry(
    "quantization algorithm",
    FakeQuantize,
    "algorithm",
    ALGORITHMS_GROUP,
    in_package(__name__, __path__, FakeQuantize, "algorithm"),
    check_algorithm,
)
"""All quantizers by name."""


def algorithm(name: str) -> type[FakeQuantize]:
    """The quantizer of that name; an error lists near matches."""
    return ALGORITHMS.find(name)


def register_algorithm(kind: Q, *, replace: bool = False) -> Q:
    """Make a quantizer known by the name in its `algorithm`; returns it, as decorators do."""
    ALGORITHMS.register(kind, replace=replace)
    return kind
