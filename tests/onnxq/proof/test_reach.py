"""Ranges that end sooner in a file than in its source."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.graph import Model
from onnxq.proof.reach import shortened
from onnxq.running.sessions import open_model
from tests.models.build import parse, quantize


def rounded(zero_point: int, scale: float = 0.1, qtype: str = "uint8") -> Model:
    model = parse("g (float[1,4] x) => (float[1,4] y) { y = Neg(x) }")
    return quantize(model, "x", qtype=qtype, scale=np.float32(scale), zero_point=zero_point)


def missing(source: Model, file: Model) -> list[float]:
    return [round(k.deviation, 3) for k in shortened(open_model(source), open_model(file))]


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_zero_point_off_by_one(shift: int) -> None:
    assert missing(rounded(100), rounded(100 + shift)) == [1.0]


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (rounded(-28, qtype="int8"), "another type with the same values"),
        (rounded(100, scale=0.11), "a wider range, which the numbers show"),
        (rounded(0), "values that are never negative"),
    ],
)
def test_what_is_no_fault(file: Model, why: str) -> None:
    assert missing(rounded(100), file) == [], why


def test_a_new_quantizer_reaches_as_far_as_the_one_before() -> None:
    def pooled(**second: int) -> Model:
        model = parse(
            """g (float[1,1,4,4] x) => (float[1,1,2,2] y) {
                p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
                y = Neg(p)
            }"""
        )
        quantize(model, "x", qtype="uint8", scale=np.float32(0.1), zero_point=100)
        for zero_point in second.values():
            quantize(model, "p", qtype="uint8", scale=np.float32(0.1), zero_point=zero_point)
        return model

    assert missing(pooled(), pooled(zero_point=100)) == []
    assert missing(pooled(), pooled(zero_point=101)) == [1.0]
