"""Models and contents for tests of reports: small, and made once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from onnxq.graph import Model
from onnxq.reporting.contents import Contents
from onnxq.workflows import demo
from onnxq.workflows.report import report

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror='window.hit=1'>"
"""A name that would run a script wherever it is not escaped."""


def images(count: int = 4) -> list[dict[str, Any]]:
    """Samples for the network of `onnxq demo`."""
    random = np.random.default_rng(0)
    return [{"image": random.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(count)]


@functools.cache
def float_network() -> Model:
    """The float network of `onnxq demo`; not to be changed."""
    return demo.build()


@functools.cache
def quantized_network() -> Model:
    """The same in the canonical form; not to be changed."""
    return demo.quantize(demo.build())


@functools.cache
def contents() -> Contents:
    """The contents of a full report."""
    return report(quantized_network(), float_network(), images()).contents


def hostile_network() -> Model:
    """The quantized network with a hostile name of a node and of a tensor."""
    model = demo.quantize(demo.build())
    node = next(n for n in model.nodes("Conv") if n.name == "block.conv1")
    node.name = HOSTILE
    node.outputs[0].name = f"{HOSTILE}.out"
    return model
