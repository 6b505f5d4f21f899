"""Normalisation and reductions."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import BackendError
from onnxq.ncnn import reader, writer
from tests.models.build import run
from tests.onnxq.ncnn.cases import graph, shaped


def test_batch_norm_has_ncnns_order_of_weights() -> None:
    (norm,) = [la for la in writer.layers_of(graph("BatchNormalization")) if la.weights]
    gain, mean, variance, shift = norm.weights
    np.testing.assert_array_equal(variance, [0.5, 2, 1, 0.25])
    assert (norm.integer(0), norm.number(1, 0.0)) == (4, np.float32(0.01))
    assert len({w.tobytes() for w in (gain, mean, shift)}) == 3


def test_reductions_keep_axes_and_reshape_where_the_graph_drops_them() -> None:
    kinds = [la.type for la in writer.layers_of(graph("ReduceMean"))]
    assert kinds == ["Input", "Reduction", "Reshape"]
    kinds = [la.type for la in writer.layers_of(graph("ReduceMean kept"))]
    assert kinds == ["Input", "Reduction"]


@pytest.mark.parametrize("opset", [13, 18])
def test_axes_as_attribute_and_as_input(opset: int) -> None:
    axes = "<int64[2] a = {2, 3}> { y = ReduceMean(x, a) }"
    body = axes if opset == 18 else "{ y = ReduceMean<axes=[2,3]>(x) }"
    model = shaped(f"g (float[1,3,4,5] x) => (float y) {body}", opset)
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)
    (got,) = run(reader.model_of(writer.layers_of(model)), x)
    np.testing.assert_allclose(got, x.astype(np.float64).mean((2, 3), keepdims=True), atol=1e-6)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("{ y = ReduceMean<axes=[0], keepdims=1>(x) }", "reduces the batch or nothing"),
        ("{ y = ReduceMean<keepdims=0>(x) }", "the batch or nothing"),
        (
            "<float[4] g = {1,1,1,1}> { y = LayerNormalization<axis=1>(x, g) }",
            "more than the last axis",
        ),
    ],
)
def test_refusals(body: str, why: str) -> None:
    with pytest.raises(BackendError, match=why):
        writer.layers_of(shaped(f"g (float[1,4,4] x) => (float y) {body}"))


def test_softmax_before_opset_13_normalises_several_axes() -> None:
    text = "g (float[1,4,4] x) => (float y) { y = Softmax<axis=1>(x) }"
    with pytest.raises(BackendError, match="before opset 13") as caught:
        writer.layers_of(shaped(text, 11))
    assert "opset 13" in caught.value.fix


def test_weights_of_another_size_are_refused() -> None:
    """A broken model: shape inference passes it."""
    model = graph("BatchNormalization")
    model.graph.inputs[0].shape = [1, 3, 6, 6]
    with pytest.raises(BackendError, match=r"shape \(4,\), and its input needs 3"):
        writer.layers_of(model)
