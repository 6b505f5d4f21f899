"""Layers of elements, read back: numbers of operations."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import LoadError
from onnxq.ncnn.elementwise import SQUARE, UNARY
from onnxq.ncnn.program import Layer
from onnxq.ncnn.reader import model_of
from tests.models.build import run

INPUT = Layer("Input", "x", (), ("x",), {0: 3})


def unary(number: int) -> np.ndarray:
    layer = Layer("UnaryOp", "u", ("x",), ("y",), {0: number})
    (found,) = run(model_of([INPUT, layer]), np.float32([[0.5, 2.0, 4.0]]))
    return found


def test_numbers_of_operations() -> None:
    np.testing.assert_array_equal(unary(SQUARE), [[0.25, 4, 16]])
    np.testing.assert_array_equal(unary(UNARY["Reciprocal"]), [[2, 0.5, 0.25]])
    np.testing.assert_array_equal(unary(UNARY["Neg"]), [[-0.5, -2, -4]])
    with pytest.raises(LoadError, match="operation 99"):
        unary(99)


@pytest.mark.parametrize(("number", "want"), [(4, [2, 2, 4]), (5, [0.5, 2, 2]), (7, [1.5, 0, -2])])
def test_numbers_of_operations_with_a_constant(number: int, want: list[float]) -> None:
    layer = Layer("BinaryOp", "b", ("x",), ("y",), {0: number, 1: 1, 2: 2.0})
    (found,) = run(model_of([INPUT, layer]), np.float32([[0.5, 2.0, 4.0]]))
    np.testing.assert_array_equal(found, [want])


@pytest.mark.parametrize("tanh", [0, 1])
def test_gelu(tanh: int) -> None:
    layer = Layer("GELU", "g", ("x",), ("y",), {0: tanh})
    (node,) = model_of([INPUT, layer]).nodes("Gelu")
    assert node.attrs["approximate"] == ("tanh" if tanh else "none")
