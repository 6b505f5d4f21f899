"""Layers with kernels, read back: sizes that fit, and groups of transposed convolutions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxq.errors import LoadError
from onnxq.ncnn import writer
from onnxq.ncnn.reader import model_of
from tests.models.build import run
from tests.onnxq.ncnn.cases import graph, int8, values


@pytest.mark.parametrize("name", ["ConvTranspose grouped", "ConvTranspose depthwise"])
def test_groups_of_transposed_convolutions(name: str) -> None:
    layers = writer.layers_of(graph(name))
    assert [la.type for la in layers if la.weights] == ["DeconvolutionDepthWise"]
    (want,), (got,) = run(graph(name), values(name)), run(model_of(layers), values(name))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_group_of_transposed_convolutions_is_never_int8() -> None:
    layers = writer.layers_of(graph("ConvTranspose depthwise"))
    at = next(i for i, la in enumerate(layers) if la.weights)
    codes = layers[at].weights[0].astype(np.int8)
    layers[at] = replace(layers[at], weights=(codes, *layers[at].weights[1:]))
    with pytest.raises(LoadError, match="no scales"):
        model_of(layers)


@pytest.mark.parametrize("params", [{0: 0}, {6: 7}, {11: 0}])
def test_sizes_that_do_not_fit(params: dict[int, int]) -> None:
    layers = writer.layers_of(int8("Conv"))
    at = next(i for i, la in enumerate(layers) if la.type == "Convolution")
    layers[at] = replace(layers[at], params={**layers[at].params, **params})
    with pytest.raises(LoadError, match=r"\(Convolution\): (its outputs|the size)"):
        model_of(layers)
