"""Element by element: operands of different ranks, constants first, exponents."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import BackendError
from onnxq.ncnn import reader, writer
from tests.models.build import quantize, run, weight
from tests.onnxq.ncnn.cases import graph, shaped, values


def test_a_number_is_a_parameter_and_an_array_is_stored() -> None:
    kinds = [la.type for la in writer.layers_of(graph("Sub"))]
    assert kinds == ["Input", "BinaryOp"]
    kinds = [la.type for la in writer.layers_of(graph("Add constant"))]
    assert kinds == ["Input", "MemoryData", "BinaryOp"]


def test_a_constant_in_front_turns_the_operation_round() -> None:
    (layer,) = [la for la in writer.layers_of(graph("Sub")) if la.type == "BinaryOp"]
    assert layer.params[0] == 7


def test_a_smaller_rank_gets_axes_in_front() -> None:
    layers = writer.layers_of(graph("Add of two ranks"))
    (wide,) = [la for la in layers if la.type == "Reshape" and la.name.endswith(".wide")]
    assert [wide.params[k] for k in (2, 1, 0)] == [1, 4, 5]


def test_a_quantized_constant_is_rounded() -> None:
    model, x = graph("PRelu"), values("PRelu")
    weight(model, "w", scale=0.25)
    (layer,) = [la for la in writer.layers_of(model) if la.type == "PReLU"]
    np.testing.assert_array_equal(layer.weights[0] * 4, np.rint(layer.weights[0] * 4))
    (want,), (got,) = run(model, x), run(reader.model_of(writer.layers_of(model)), x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_quantized_operand_that_is_constant_is_rounded() -> None:
    model, x = quantize(graph("Add constant"), "w", scale=0.25), values("Add constant")
    (want,), (got,) = run(model, x), run(reader.model_of(writer.layers_of(model)), x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "why", "fix"),
    [
        ("<float e = {3}> { y = Pow(x, e) }", "exponent is 3", "products"),
        ("<float[1,2,4] s = {1,2,3,4,5,6,7,8}> { y = PRelu(x, s) }", "slopes of shape", "Relu"),
        ("<float[2,1,1] w = {1,2}> { y = Add(x, w) }", "first axis of 2", "batch 1"),
    ],
)
def test_refusals(body: str, why: str, fix: str) -> None:
    with pytest.raises(BackendError, match=why) as caught:
        writer.layers_of(shaped(f"g (float[1,2,4] x) => (float y) {body}"))
    assert fix in caught.value.fix
