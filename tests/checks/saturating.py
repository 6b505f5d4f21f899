"""8-bit kernels of CPUs with AVX2 but without VNNI: computed here, and looked for on this CPU.

A test that is about such CPUs computes their sums by itself, so that it says the same on all.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from onnxq.proof.difference import TensorDiff
from onnxq.proof.trusted import Trusted
from onnxq.proof.verify import saturation
from onnxq.running.samples import Data
from onnxq.running.sessions import ModelSource, reference, shipped
from tests.models.zoo import ZOO, inputs

Ints = NDArray[np.int64]


def saturated_products(codes: Ints, x: Ints, *, clip: bool = True) -> Ints:
    """What vpmaddubsw makes: sums of neighbouring products, clipped at 16 bits."""
    odd = codes.shape[1] % 2
    codes, x = np.pad(codes, ((0, 0), (0, odd))), np.pad(x, ((0, odd), (0, 0)))
    products = codes[:, :, None] * x[None]
    pairs = products[:, ::2] + products[:, 1::2]
    return np.clip(pairs, -(2**15), 2**15 - 1) if clip else pairs


@functools.cache
def cpu_saturates() -> bool:
    """Whether onnxruntime's default session differs from the reference on this CPU."""
    proto = ZOO["qdq_saturating"]()
    feeds = inputs(proto)
    results = [next(iter(run(proto).run(feeds).values())) for run in (reference, shipped)]
    return not np.allclose(*results)


def saturates(model: ModelSource, data: Data = None) -> TensorDiff | None:
    """How far onnxruntime's default session is off on this CPU, or None if it is right."""
    return saturation(Trusted(model, data, kind="deployed"))
