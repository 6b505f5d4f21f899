"""One small graph for every operator that is written for ncnn."""

from __future__ import annotations

import re

import numpy as np

from onnxq.graph import Model
from passes.infer_shapes import InferShapes
from tests.models.build import apply, parse, run

IMAGE = "(float[1,4,6,6] x) => (float y)"
ROWS = "(float[1,3,4] x) => (float y)"
CASES = {
    "Conv": f"{IMAGE} <float[5,4,3,3] w, float[5] b> {{ "
    f"y = Conv<pads=[1,0,1,2], strides=[2,1]>(x, w, b) }}",
    "Conv of one axis": f"{ROWS} <float[5,3,3] w> {{ y = Conv<pads=[1,1]>(x, w) }}",
    "Conv dilated": f"{IMAGE} <float[5,4,3,3] w> {{ y = Conv<dilations=[2,1]>(x, w) }}",
    "Conv depthwise": f"{IMAGE} <float[4,1,3,3] w, float[4] b> {{ y = Conv<group=4>(x, w, b) }}",
    "Conv grouped": f"{IMAGE} <float[6,2,3,3] w> {{ y = Conv<group=2>(x, w) }}",
    "ConvTranspose": f"{IMAGE} <float[4,5,3,2] w, float[5] b> {{ "
    f"y = ConvTranspose<strides=[2,2], pads=[1,0,1,0], output_padding=[1,0]>(x, w, b) }}",
    "ConvTranspose grouped": f"{IMAGE} <float[4,3,3,2] w, float[6] b> {{ "
    f"y = ConvTranspose<group=2, strides=[2,1], pads=[1,0,0,1]>(x, w, b) }}",
    "ConvTranspose depthwise": f"{IMAGE} <float[4,1,1,1] w> {{ "
    f"y = ConvTranspose<group=4, strides=[2,2], output_padding=[1,1]>(x, w) }}",
    "Gemm": "(float[1,7] x) => (float y) <float[7,3] w, float[3] b> { y = Gemm(x, w, b) }",
    "Gemm transB": "(float[1,7] x) => (float y) <float[3,7] w> { y = Gemm<transB=1>(x, w) }",
    "MatMul": f"{ROWS} <float[4,5] w> {{ y = MatMul(x, w) }}",
    "MatMul one row": "(float[1,1,4] x) => (float y) <float[4,5] w> { y = MatMul(x, w) }",
    "MatMul and bias": f"{ROWS} <float[4,5] w, float[5] b> {{ s = MatMul(x, w) y = Add(s, b) }}",
    "MatMul of two": f"{ROWS} {{ t = Transpose<perm=[0,2,1]>(x) y = MatMul(x, t) }}",
    "Add": f"{IMAGE} {{ r = Relu(x) y = Add(x, r) }}",
    "Add constant": f"{IMAGE} <float[4,1,1] w> {{ y = Add(x, w) }}",
    "Sub": f"{IMAGE} <float w> {{ y = Sub(w, x) }}",
    "Mul": f"{IMAGE} <float[1,1,6] w> {{ y = Mul(x, w) }}",
    "Div": f"{IMAGE} {{ s = Sigmoid(x) y = Div(x, s) }}",
    "Relu": f"{IMAGE} {{ y = Relu(x) }}",
    "LeakyRelu": f"{IMAGE} {{ y = LeakyRelu<alpha=0.3>(x) }}",
    "Clip": f"{IMAGE} <float low, float w> {{ y = Clip(x, low, w) }}",
    "Clip below": f"{IMAGE} <float low> {{ y = Clip(x, low) }}",
    "Sigmoid": f"{IMAGE} {{ y = Sigmoid(x) }}",
    "Tanh": f"{IMAGE} {{ y = Tanh(x) }}",
    "HardSwish": f"{IMAGE} {{ y = HardSwish(x) }}",
    "HardSigmoid": f"{IMAGE} {{ y = HardSigmoid<alpha=0.3>(x) }}",
    "Softmax": f"{ROWS} {{ y = Softmax<axis=1>(x) }}",
    "Concat": f"{IMAGE} {{ r = Relu(x) y = Concat<axis=2>(x, r) }}",
    "Flatten": f"{IMAGE} {{ y = Flatten(x) }}",
    "Reshape": f"{IMAGE} <int64[3] shape = {{1, 8, 18}}> {{ y = Reshape(x, shape) }}",
    "Squeeze": "(float[1,4,1,6] x) => (float y) <int64[1] axes = {2}> { y = Squeeze(x, axes) }",
    "Unsqueeze": f"{ROWS} <int64[1] axes = {{1}}> {{ y = Unsqueeze(x, axes) }}",
    "Identity": f"{IMAGE} {{ y = Identity(x) }}",
    "Dropout": f"{IMAGE} {{ y = Dropout(x) }}",
    "Transpose": f"{IMAGE} {{ a = Transpose<perm=[0,2,3,1]>(x) b = Transpose<perm=[0,3,2,1]>(a) "
    f"y = Transpose<perm=[0,2,1,3]>(b) }}",
    "MaxPool": f"{IMAGE} {{ y = MaxPool<kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,1]>(x) }}",
    "MaxPool of one axis": f"{ROWS} {{ y = MaxPool<kernel_shape=[2]>(x) }}",
    "AveragePool": f"{IMAGE} {{ y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x) }}",
    "AveragePool with pads": f"{IMAGE} {{ "
    f"y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(x) }}",
    "GlobalAveragePool": f"{IMAGE} {{ y = GlobalAveragePool(x) }}",
    "GlobalMaxPool": f"{ROWS} {{ y = GlobalMaxPool(x) }}",
    "LayerNormalization": f"{ROWS} <float[4] w, float[4] b> {{ "
    f"y = LayerNormalization<epsilon=0.01>(x, w, b) }}",
    "PRelu": f"{IMAGE} <float[4,1,1] w> {{ y = PRelu(x, w) }}",
    "Resize": f"{IMAGE} <float[4] scales = {{1, 1, 2, 3}}> {{ "
    f"y = Resize<mode=\"nearest\", coordinate_transformation_mode=\"asymmetric\", "
    f"nearest_mode=\"floor\">(x, , scales) }}",
}  # fmt: skip
"""Graphs by the operator that their name begins with; weights are filled in by `graph`."""


def graph(name: str) -> Model:
    """The graph, with random weights and known shapes."""
    rng = np.random.default_rng(0)
    return shaped(f"g {_filled(CASES[name], rng)}")


def shaped(text: str) -> Model:
    """A graph whose output has the shape that it really has."""
    model = apply(parse(text), InferShapes())[0]
    (x,), (y,) = model.graph.inputs, model.graph.outputs
    y.shape = list(run(model, np.zeros(x.shape, np.float32))[0].shape)
    return model


def values(name: str) -> np.ndarray:
    """A random input for the graph."""
    (x,) = graph(name).graph.inputs
    return np.random.default_rng(1).normal(size=x.shape).astype(np.float32)


def _filled(text: str, rng: np.random.Generator) -> str:
    """Values for every parameter without one."""

    def fill(found: re.Match[str]) -> str:
        shape = [int(d) for d in found[1].split(",")] if found[1] else []
        values = rng.normal(size=int(np.prod(shape)))
        if found[2] == "low":
            values = -np.abs(values)
        elif not shape:
            values = np.abs(values) + 0.5
        inner = ", ".join(f"{v:.4f}" for v in values)
        return f"{found[0]} = {{{inner}}}"

    head = text.partition("{")[0]
    if "<" not in head.partition("=>")[2]:
        return text
    start = text.index("<", text.index("=>"))
    end = text.index(">", start)
    params = re.sub(r"float(?:\[([\d,]+)\])? (\w+)(?! *=)\b(?! *=)", fill, text[start:end])
    return text[:start] + params + text[end:]
