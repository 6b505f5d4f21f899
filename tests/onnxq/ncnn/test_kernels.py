"""Layers with a kernel: int8 where both sides are quantized, float on rounded values else."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import BackendError
from onnxq.ncnn import reader, writer
from tests.models.build import quantize, run, weight
from tests.onnxq.ncnn.cases import CASES, graph, has_int8, int8, several_scales, values


@pytest.mark.parametrize("name", [n for n in CASES if n.split()[0] in ("Conv", "Gemm", "MatMul")])
def test_int8(name: str) -> None:
    model, x = int8(name), values(name)
    (want,) = run(model, x)
    layers = writer.layers_of(model)
    inner = [la for la in layers if la.weights and la.weights[0].dtype == np.int8]
    assert len(inner) == has_int8(name)
    (got,) = run(reader.model_of(layers), x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_scales_multiply_and_lie_behind_the_weights() -> None:
    model = graph("Conv")
    quantize(model, "x", lo=-127, scale=0.02)
    steps = np.linspace(0.01, 0.05, 5, dtype=np.float32)
    weight(model, "w", lo=-127, scale=steps, axis=0)
    (conv,) = [la for la in writer.layers_of(model) if la.type == "Convolution"]
    codes, bias, weights, inputs = conv.weights
    assert (codes.dtype, bias.size) == (np.int8, 5)
    np.testing.assert_allclose(weights, 1 / steps, rtol=1e-7)
    np.testing.assert_allclose(inputs, [50.0], rtol=1e-7)
    assert conv.params[8] == 2


def test_only_one_side_quantized_runs_in_float_on_rounded_values() -> None:
    model, x = graph("Conv"), values("Conv")
    weight(model, "w", lo=-127, scale=0.1)
    (conv,) = [la for la in writer.layers_of(model) if la.type == "Convolution"]
    assert conv.weights[0].dtype == np.float32
    assert 8 not in conv.params
    np.testing.assert_allclose(conv.weights[0] / 0.1, np.rint(conv.weights[0] / 0.1), atol=1e-4)
    (want,), (got,) = run(model, x), run(reader.model_of(writer.layers_of(model)), x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_grouped_convolutions_have_one_scale_per_group() -> None:
    model = quantize(graph("Conv grouped"), "x", lo=-127, scale=0.02)
    steps = np.repeat(np.array([0.01, 0.03], np.float32), 3)
    weight(model, "w", lo=-127, scale=steps, axis=0)
    (conv,) = [la for la in writer.layers_of(model) if la.type == "ConvolutionDepthWise"]
    np.testing.assert_allclose(conv.weights[-2], [100.0, 1 / 0.03], rtol=1e-6)
    assert conv.params[8] == 1


def test_several_scales_in_a_group_make_one_convolution_per_group() -> None:
    model, x = several_scales(), values("Conv grouped")
    layers = writer.layers_of(model)
    kinds = [la.type for la in layers]
    assert kinds == ["Input", "Slice", "Convolution", "Convolution", "Concat"]
    np.testing.assert_allclose(
        np.concatenate([la.weights[-2] for la in layers if la.type == "Convolution"]),
        1 / np.linspace(0.01, 0.02, 6),
        rtol=1e-6,
    )
    (want,), (got,) = run(model, x), run(reader.model_of(layers), x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_scales_along_the_inputs_are_refused() -> None:
    for name, axis, count in (("Conv", 1, 4), ("Gemm", 0, 7)):
        model = quantize(graph(name), "x", lo=-127, scale=0.02)
        weight(model, "w", lo=-127, scale=np.full(count, 0.02), axis=axis)
        with pytest.raises(BackendError, match="along its outputs"):
            writer.layers_of(model)
