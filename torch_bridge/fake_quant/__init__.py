"""The quantizers by name: how a tensor is rounded in training, and which parameters learn.

A new algorithm is one file in this folder with a subclass of `FakeQuantize` that has a name in
`algorithm`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping

from onnxq.errors import OptionError, near_matches
from torch_bridge.fake_quant.base import FakeQuantize

__all__ = ["ALGORITHMS", "FakeQuantize", "algorithm"]


def _defined_here() -> Iterator[type[FakeQuantize]]:
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        for value in vars(module).values():
            if not isinstance(value, type) or value.__module__ != module.__name__:
                continue
            if issubclass(value, FakeQuantize) and value.algorithm:
                yield value


ALGORITHMS: Mapping[str, type[FakeQuantize]] = {kind.algorithm: kind for kind in _defined_here()}
"""All quantizers by name."""


def algorithm(name: str) -> type[FakeQuantize]:
    """The quantizer of that name; an error lists near matches."""
    if name not in ALGORITHMS:
        raise OptionError(
            f"there is no quantization algorithm '{name}'", fix=near_matches(name, ALGORITHMS)
        )
    return ALGORITHMS[name]
