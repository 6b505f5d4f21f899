"""Models that can be compared on the same inputs."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.running.ort_tensors import TensorSpec
from onnxq.timing.shared_inputs import group


def spec(*shape: int | str | None, name: str = "x", kind: str = "float") -> TensorSpec:
    dtype = np.dtype({"float": "float32", "uint8": "uint8"}[kind])
    return TensorSpec(name, shape, f"tensor({kind})", dtype)


def test_open_dimensions_take_the_sizes_that_others_fix() -> None:
    models = [[spec("N", 3, None, "W")], [spec(1, 3, "H", 224)], [spec(1, 3, 32, "W")]]
    (found,) = group(enumerate(models))
    assert found.members == [0, 1, 2]
    assert found.inputs == (spec(1, 3, 32, 224),)


@pytest.mark.parametrize(
    "other",
    [
        [spec(1, 4)],
        [spec(1, 3, 1)],
        [spec(1, 3, name="y")],
        [spec(1, 3, kind="uint8")],
        [spec(1, 3), spec(1, 3, name="y")],
        [],
    ],
)
def test_other_inputs_are_another_group(other: list[TensorSpec]) -> None:
    found = group(enumerate([[spec(1, 3)], other, [spec("N", 3)]]))
    assert [g.members for g in found] == [[0, 2], [1]]


def test_the_order_of_inputs_does_not_matter() -> None:
    a, b = spec(1), spec(2, name="y")
    (found,) = group(enumerate([[a, b], [b, a]]))
    assert found.inputs == (a, b)


def test_sizes_that_contradict_each_other_through_an_open_one() -> None:
    found = group(enumerate([[spec("N")], [spec(4)], [spec(8)]]))
    assert [g.members for g in found] == [[0, 1], [2]]
