"""From a graph to ncnn's files: what cannot be written is refused, all of it, by name."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import BackendError
from onnxq.ncnn import reader
from onnxq.ncnn.operators import TRANSLATORS
from onnxq.ncnn.program import MAGIC
from onnxq.ncnn.writer import _INSTEAD, layers_of, write
from passes.infer_shapes import InferShapes
from tests.models.build import apply, parse, quantize, run
from tests.onnxq.ncnn.cases import graph, shaped


def test_both_files() -> None:
    files = write(graph("Conv"))
    assert set(files) == {"param", "bin"}
    assert isinstance(files["param"], str)
    assert files["param"].startswith(MAGIC)
    assert len(files["bin"]) == 4 + 4 * 5 * 4 * 9 + 4 * 5


def test_all_refusals_come_at_once_and_readers_of_the_lost_are_not_blamed() -> None:
    model = parse(
        """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
            a = Sinh(x)
            b = Relu(a)
            c = Round(x)
            d = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x)
            y = Add(b, c)
        }"""
    )
    with pytest.raises(BackendError) as caught:
        layers_of(apply(model, InferShapes())[0])
    assert "3 parts" in caught.value.what
    for op in ("Sinh", "Round", "MaxPool"):
        assert op in caught.value.what
    assert "Relu" not in caught.value.what
    assert "Conv" in caught.value.fix


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }", "batches of 1"),
        ("(float[1,3] x) => (float[1,3] y) { y = Softmax<axis=0>(x) }", "along the batch"),
        ("(float[1,2,3] x) => (float y) { y = Transpose<perm=[1,0,2]>(x) }", "not its first axis"),
        (
            "(float[1,2,3] x) => (float y) { t = Transpose<perm=[1,0,2]>(x) y = Relu(t) }",
            "batch of",
        ),
        (
            "(float[1,9,9] x) => (float y) { y = MaxPool<kernel_shape=[3], dilations=[2]>(x) }",
            "dil",
        ),
        (
            "(float[1,1,4,4] x) => (float y) <float[1,1,2,2] w = {1,2,3,4}> "
            '{ y = ConvTranspose<strides=[2,2], auto_pad="SAME_UPPER">(x, w) }',
            "auto_pad",
        ),
        (
            "(float[1,1,4,4] x) => (float y) <float[4] s = {1,1,1.5,1.5}> { y = Resize(x, , s) }",
            "integer factors",
        ),
        (
            "(float[1,1,4,4,4] x) => (float y) <float[1,1,1,1,1] w = {1}> { y = Conv(x, w) }",
            "over 3 axes",
        ),
    ],
)
def test_reasons(body: str, why: str) -> None:
    with pytest.raises(BackendError, match=why):
        layers_of(shaped(f"g {body}"))


def test_unknown_sizes() -> None:
    with pytest.raises(BackendError, match="known"):
        layers_of(parse("g (float[1,N] x) => (float[1,N] y) { y = Relu(x) }"))


def test_a_grid_that_ncnn_does_not_have_names_the_tensor() -> None:
    model = quantize(graph("Relu"), "x", zero_point=3)
    with pytest.raises(BackendError, match=r"'x' is quantized to int8 -128\.\.127"):
        layers_of(model)


def test_the_next_step_fits_the_cause() -> None:
    with pytest.raises(BackendError) as caught:
        layers_of(quantize(graph("Relu"), "x", zero_point=3))
    assert "--allow-requantize" in caught.value.fix
    assert "take these parts out" not in caught.value.fix
    with pytest.raises(BackendError) as caught:
        layers_of(shaped("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }"))
    assert caught.value.fix == "export with batch 1 or a dynamic batch"
    with pytest.raises(BackendError, match="1 part of the model") as caught:
        layers_of(shaped("g (float[1,3] x) => (float[1,3] y) { y = Sinh(x) }"))
    assert "remove these parts" in caught.value.fix


def test_several_inputs_and_outputs_keep_their_names() -> None:
    """An output that is read as well is one of the copies, under its own name."""
    text = """g (float[1,4] a, float[1,4] b, float[1,4] unused) => (float[1,4] s, float[1,4] y) {
        s = Add(a, b)
        y = Relu(s)
    }"""
    model = apply(parse(text), InferShapes())[0]
    layers = layers_of(model)
    read = {blob for layer in layers for blob in layer.bottoms}
    made = [blob for layer in layers if layer.type != "Input" for blob in layer.tops]
    assert [blob for blob in made if blob not in read] == ["s", "y"]
    again = reader.model_of(layers)
    assert [t.name for t in again.graph.inputs] == ["a", "b", "unused"]
    assert [t.name for t in again.graph.outputs] == ["s", "y"]
    feeds = np.random.default_rng(0).normal(size=(3, 1, 4)).astype(np.float32)
    for want, got in zip(run(model, *feeds), run(again, *feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def test_an_output_that_is_an_input_is_refused() -> None:
    model = parse("g (float[1,4] x) => (float[1,4] x, float[1,4] y) { y = Relu(x) }")
    with pytest.raises(BackendError, match="output 'x': it is an input too"):
        layers_of(apply(model, InferShapes())[0])


def test_known_gaps_have_a_next_step_of_their_own() -> None:
    model = shaped("g (float[1,2] x) => (float y) { s = Shape(x) y = Expand(x, s) }")
    with pytest.raises(BackendError, match="operator Shape") as caught:
        layers_of(model)
    assert caught.value.fix.startswith("export with fixed sizes")
    assert not set(_INSTEAD) & set(TRANSLATORS)
