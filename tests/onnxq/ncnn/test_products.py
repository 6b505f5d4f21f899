"""Products: rows of any number of axes, factors, and constants that no InnerProduct multiplies."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import BackendError
from onnxq.ncnn import reader, writer
from tests.models.build import quantize, run, weight
from tests.onnxq.ncnn.cases import graph, int8, shaped, values


def test_more_axes_are_laid_out_as_rows() -> None:
    kinds = [la.type for la in writer.layers_of(int8("MatMul of planes"))]
    assert kinds == ["Input", "Reshape", "InnerProduct", "Reshape"]


def test_the_factor_of_a_gemm_is_part_of_its_scales() -> None:
    (plain,) = [la for la in writer.layers_of(int8("Gemm")) if la.weights]
    (scaled,) = [la for la in writer.layers_of(int8("Gemm scaled")) if la.weights]
    np.testing.assert_array_equal(plain.weights[0], scaled.weights[0])
    np.testing.assert_allclose(scaled.weights[1], 2 * plain.weights[1], rtol=1e-6)
    np.testing.assert_allclose(scaled.weights[2], 2 * plain.weights[2], rtol=1e-6)


def test_a_negative_factor_runs_in_float() -> None:
    text = "g (float[1,3] x) => (float y) <float[3,2] w = {1,2,3,4,5,6}> "
    model = shaped(text + "{ y = Gemm<alpha=-1.0>(x, w) }")
    weight(quantize(model, "x", lo=-127), "w", lo=-127, scale=0.05)
    x = np.float32([[0.31, -1.2, 4.0]])
    (want,), (got,) = run(model, x), run(reader.model_of(writer.layers_of(model)), x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_constant_stack_is_stored_rounded() -> None:
    name = "MatMul of two, one constant"
    model, x = quantize(graph(name), "k", lo=-127, scale=0.25), values(name)
    kinds = [la.type for la in writer.layers_of(model)]
    assert kinds == ["Input", "MemoryData", "MatMul"]
    (want,), (got,) = run(model, x), run(reader.model_of(writer.layers_of(model)), x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_rows_whose_batch_is_merged_run_in_int8() -> None:
    name = "Reshape to rows of a Gemm"
    model, x = quantize(graph(name), "r", lo=-127, scale=0.02), values(name)
    weight(model, "w", lo=-127, scale=np.linspace(0.01, 0.02, 5, dtype=np.float32), axis=0)
    layers = writer.layers_of(model)
    (inner,) = [la for la in layers if la.type == "InnerProduct"]
    assert inner.weights[0].dtype == np.int8
    (want,), (got,) = run(model, x), run(reader.model_of(layers), x)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


STACK = f"float[1,4,3,2] k = {{{', '.join(['1'] * 24)}}}"


SQUEEZED = "<int64[1] a = {0}>"


@pytest.mark.parametrize(
    ("head", "body", "why"),
    [
        ("float[1,1] x", "<float[1,2] w = {1,2}> { y = Gemm<transA=1>(x, w) }", "transA"),
        ("float[1,2,3] x", f"<{STACK}> {{ y = MatMul(x, k) }}", "matrix by matrix"),
        ("float[1,1] x", "{ r = Relu(x) y = Gemm(x, r) }", "weight is computed"),
        ("float[1,2,3] x", f"{SQUEEZED} {{ y = Squeeze(x, a) }}", "no axis of it is the batch"),
        (
            "float[1,2,3] x",
            f"{SQUEEZED} {{ r = Squeeze(x, a) s = Softmax(r) y = Unsqueeze(s, a) }}",
            "no axis of 'r' is the batch",
        ),
        ("float[1,2,3] x", f"{SQUEEZED} {{ r = Squeeze(x, a) y = Add(x, r) }}", "merged"),
        (
            "float[1,2,3] x",
            f"{SQUEEZED[:-1]}, float[3,2] w = {{1,2,3,4,5,6}}, float[2,1] b = {{1,2}}> "
            "{ r = Squeeze(x, a) g = Gemm(r, w, b) y = Unsqueeze(g, a) }",
            "its bias has shape",
        ),
    ],
)
def test_refusals(head: str, body: str, why: str) -> None:
    with pytest.raises(BackendError, match=why) as caught:
        writer.layers_of(shaped(f"g ({head}) => (float y) {body}"))
    assert "remove these parts" not in caught.value.fix
