"""One small graph for every operator that is written for ncnn."""

from __future__ import annotations

import re

import numpy as np

from onnxq.graph import Model
from passes.infer_shapes import InferShapes
from tests.models.build import apply, parse, quantize, run, weight

IMAGE = "(float[1,4,6,6] x) => (float y)"
ROWS = "(float[1,3,4] x) => (float y)"
BLOCK = "(float[1,2,3,4,5] x) => (float y)"
CASES = {
    "Conv": f"{IMAGE} <float[5,4,3,3] w, float[5] b> {{ "
    f"y = Conv<pads=[1,0,1,2], strides=[2,1]>(x, w, b) }}",
    "Conv of one axis": f"{ROWS} <float[5,3,3] w> {{ y = Conv<pads=[1,1]>(x, w) }}",
    "Conv dilated": f"{IMAGE} <float[5,4,3,3] w> {{ y = Conv<dilations=[2,1]>(x, w) }}",
    "Conv depthwise": f"{IMAGE} <float[4,1,3,3] w, float[4] b> {{ y = Conv<group=4>(x, w, b) }}",
    "Conv grouped": f"{IMAGE} <float[6,2,3,3] w> {{ y = Conv<group=2>(x, w) }}",
    "ConvTranspose": f"{IMAGE} <float[4,5,3,2] w, float[5] b> {{ "
    f"y = ConvTranspose<strides=[2,2], pads=[1,0,1,0], output_padding=[1,0]>(x, w, b) }}",
    "Gemm": "(float[1,7] x) => (float y) <float[7,3] w, float[3] b> { y = Gemm(x, w, b) }",
    "Gemm transB": "(float[1,7] x) => (float y) <float[3,7] w> { y = Gemm<transB=1>(x, w) }",
    "Reshape to rows of a Gemm": f"{ROWS} <int64[2] flat = {{3, 4}}, float[5,4] w, float[5] b, "
    f"int64[3] back = {{1, 3, 5}}> {{ r = Reshape(x, flat) g = Gemm<transB=1>(r, w, b) "
    f"y = Reshape(g, back) }}",
    "Squeeze to rows of a Gemm": f"{ROWS} <int64[1] axis = {{0}}, float[4,5] w, float[5] b, "
    f"float[3,1] c> {{ r = Squeeze(x, axis) g = Gemm(r, w, b) s = Sigmoid(g) m = Mul(g, s) "
    f"a = Add(c, m) y = Unsqueeze(a, axis) }}",
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
    "Conv same upper": f"{IMAGE} <float[5,4,3,2] w> {{ "
    f"y = Conv<auto_pad=\"SAME_UPPER\", strides=[2,2]>(x, w) }}",
    "ConvTranspose grouped": f"{IMAGE} <float[4,3,3,2] w, float[6] b> {{ "
    f"y = ConvTranspose<group=2, strides=[2,1], pads=[1,0,0,1]>(x, w, b) }}",
    "ConvTranspose depthwise": f"{IMAGE} <float[4,1,2,2] w> {{ "
    f"y = ConvTranspose<group=4, strides=[2,2]>(x, w) }}",
    "ConvTranspose of one axis": f"{ROWS} <float[3,5,3] w> {{ "
    f"y = ConvTranspose<strides=[2]>(x, w) }}",
    "Gemm scaled": "(float[1,7] x) => (float y) <float[7,3] w, float[3] b> { "
    "y = Gemm<alpha=0.5, beta=2.0>(x, w, b) }",
    "MatMul of planes": f"{IMAGE} <float[6,5] w> {{ y = MatMul(x, w) }}",
    "MatMul of two stacks": f"{IMAGE} {{ t = Transpose<perm=[0,1,3,2]>(x) y = MatMul(x, t) }}",
    "MatMul of two, one constant": f"{IMAGE} <float[1,4,6,3] k> {{ y = MatMul(x, k) }}",
    "MatMul of two, first constant": f"{ROWS} <float[5,3] k> {{ y = MatMul(k, x) }}",
    "Add of two ranks": "(float[1,3,4,5] x) => (float y) <int64[1] axes = {1}> { "
    "r = ReduceSum<keepdims=0>(x, axes) y = Add(x, r) }",
    "Add of a column": f"{IMAGE} {{ r = GlobalAveragePool(x) y = Add(r, x) }}",
    "Sum": f"{IMAGE} <float[4,1,1] w> {{ r = Relu(x) y = Sum(w, x, r) }}",
    "Max": f"{IMAGE} <float w> {{ r = Neg(x) y = Max(x, r, w) }}",
    "Min": f"{IMAGE} <float[6] w> {{ y = Min(w, x) }}",
    "Abs": f"{IMAGE} {{ y = Abs(x) }}",
    "Neg": f"{IMAGE} {{ y = Neg(x) }}",
    "Floor": f"{IMAGE} {{ y = Floor(x) }}",
    "Ceil": f"{IMAGE} {{ y = Ceil(x) }}",
    "Exp": f"{IMAGE} {{ y = Exp(x) }}",
    "Sin": f"{IMAGE} {{ y = Sin(x) }}",
    "Cos": f"{IMAGE} {{ y = Cos(x) }}",
    "Sqrt": f"{IMAGE} {{ s = Sigmoid(x) y = Sqrt(s) }}",
    "Log": f"{IMAGE} {{ s = Sigmoid(x) y = Log(s) }}",
    "Reciprocal": f"{IMAGE} {{ s = Sigmoid(x) y = Reciprocal(s) }}",
    "Pow": f"{IMAGE} <float two = {{2}}> {{ y = Pow(x, two) }}",
    "Swish": f"{IMAGE} {{ s = Sigmoid(x) y = Mul(x, s) }}",
    "Elu": f"{IMAGE} {{ y = Elu<alpha=0.7>(x) }}",
    "Erf": f"{IMAGE} {{ y = Erf(x) }}",
    "Gelu": f"{IMAGE} {{ y = Gelu(x) }}",
    "Gelu by tanh": f"{IMAGE} {{ y = Gelu<approximate=\"tanh\">(x) }}",
    "Mish": f"{IMAGE} {{ y = Mish(x) }}",
    "Softmax of channels": f"{IMAGE} {{ y = Softmax<axis=1>(x) }}",
    "Softmax of four axes": f"{BLOCK} {{ y = Softmax<axis=2>(x) }}",
    "Concat of a constant": f"{ROWS} <float[1,2,4] w> {{ y = Concat<axis=1>(x, w) }}",
    "Concat of four axes": f"{BLOCK} {{ r = Relu(x) y = Concat<axis=2>(x, r) }}",
    "Split": f"{IMAGE} <int64[2] sizes = {{1, 3}}> {{ a, b = Split<axis=1>(x, sizes) "
    f"r = Relu(b) y = Concat<axis=1>(r, a) }}",
    "Split of rows": f"{IMAGE} {{ a, b, c = Split<axis=2>(x) y = Concat<axis=3>(c, a, b) }}",
    "Split in part": f"{IMAGE} <int64[3] sizes = {{1, 2, 1}}> {{ "
    f"a, y, c = Split<axis=1>(x, sizes) }}",
    "Slice": f"{IMAGE} <int64[2] starts = {{1, -3}}, int64[2] ends = {{3, 100}}, "
    f"int64[2] axes = {{1, 3}}> {{ y = Slice(x, starts, ends, axes) }}",
    "Slice with steps": f"{IMAGE} <int64[2] starts = {{1, 0}}, int64[2] ends = {{6, 6}}, "
    f"int64[2] axes = {{2, 3}}, int64[2] steps = {{2, 3}}> {{ "
    f"y = Slice(x, starts, ends, axes, steps) }}",
    "Slice of a vector": "(float[1,9] x) => (float y) <int64[1] starts = {2}, "
    "int64[1] ends = {7}, int64[1] axes = {1}> { y = Slice(x, starts, ends, axes) }",
    "Gather": f"{ROWS} <int64 at = {{-1}}> {{ y = Gather<axis=1>(x, at) }}",
    "Gather of several": f"{IMAGE} <int64[2] at = {{1, 2}}> {{ y = Gather<axis=3>(x, at) }}",
    "Transpose of the batch": f"{ROWS} {{ t = Transpose<perm=[2,0,1]>(x) "
    f"y = Transpose<perm=[1,2,0]>(t) }}",
    "Gather of heads": "(float[1,5,3,2,4] x) => (float y) <int64 a = {0}, int64 b = {2}> { "
    "t = Transpose<perm=[2,0,3,1,4]>(x) q = Gather<axis=0>(t, a) k = Gather<axis=0>(t, b) "
    "y = Add(q, k) }",
    "Split of heads": "(float[1,5,3,2,4] x) => (float y) <int64[1] first = {0}> { "
    "t = Transpose<perm=[2,0,3,1,4]>(x) a, b, c = Split<axis=0>(t) "
    "q = Squeeze(a, first) k = Squeeze(b, first) v = Squeeze(c, first) s = Add(q, k) "
    "y = Mul(s, v) }",
    "Slice of heads": "(float[1,5,3,2,4] x) => (float y) <int64[1] o = {1}, int64[1] e = {2}, "
    "int64[1] first = {0}> { t = Transpose<perm=[2,0,3,1,4]>(x) s = Slice(t, o, e, first) "
    "y = Squeeze(s, first) }",
    "Pad": f"{IMAGE} <int64[8] pads = {{0,0,1,2,0,0,3,4}}, float w> {{ y = Pad(x, pads, w) }}",
    "Pad of channels": f"{IMAGE} <int64[8] pads = {{0,1,0,1,0,2,0,0}}> {{ y = Pad(x, pads) }}",
    "Pad of rows": f"{ROWS} <int64[6] pads = {{0,1,2,0,0,3}}> {{ y = Pad(x, pads) }}",
    "Pad by edges": f"{IMAGE} <int64[8] pads = {{0,0,1,2,0,0,3,1}}> {{ "
    f"y = Pad<mode=\"edge\">(x, pads) }}",
    "Pad by reflection": f"{IMAGE} <int64[8] pads = {{0,0,1,2,0,0,3,1}}> {{ "
    f"y = Pad<mode=\"reflect\">(x, pads) }}",
    "DepthToSpace": f"{IMAGE} {{ y = DepthToSpace<blocksize=2, mode=\"CRD\">(x) }}",
    "DepthToSpace by depth": "(float[1,8,3,3] x) => (float y) { "
    "y = DepthToSpace<blocksize=2>(x) }",
    "Reshape to four axes": f"{IMAGE} <int64[5] shape = {{1, 2, 2, 6, 6}}> {{ "
    f"y = Reshape(x, shape) }}",
    "Transpose of channels in groups": f"{IMAGE} <int64[5] a = {{1, 2, 2, 6, 6}}, "
    f"int64[4] b = {{1, 4, 6, 6}}> {{ r = Reshape(x, a) "
    f"t = Transpose<perm=[0,2,1,3,4]>(r) y = Reshape(t, b) }}",
    "Transpose of four axes": f"{BLOCK} {{ a = Transpose<perm=[0,4,2,1,3]>(x) "
    f"y = Transpose<perm=[0,3,4,1,2]>(a) }}",
    "MaxPool rounding up": "(float[1,4,7,8] x) => (float y) { "
    "y = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x) }",
    "MaxPool same lower": f"{IMAGE} {{ "
    f"y = MaxPool<kernel_shape=[2,2], auto_pad=\"SAME_LOWER\">(x) }}",
    "AveragePool rounding up": "(float[1,4,8,7] x) => (float y) { y = AveragePool"
    "<kernel_shape=[3,3], strides=[2,2], pads=[1,0,0,0], ceil_mode=1>(x) }",
    "AveragePool of one axis": f"{ROWS} {{ "
    f"y = AveragePool<kernel_shape=[3], pads=[1,1]>(x) }}",
    "ReduceMean": f"{IMAGE} {{ y = ReduceMean<axes=[2,3], keepdims=0>(x) }}",
    "ReduceMean kept": f"{IMAGE} {{ y = ReduceMean<axes=[-1,-2]>(x) }}",
    "ReduceMean of channels": f"{IMAGE} {{ y = ReduceMean<axes=[1]>(x) }}",
    "ReduceMean of rows": f"{ROWS} {{ y = ReduceMean<axes=[1], keepdims=0>(x) }}",
    "ReduceSum": f"{IMAGE} <int64[1] axes = {{2}}> {{ y = ReduceSum<keepdims=0>(x, axes) }}",
    "ReduceMax": f"{IMAGE} {{ y = ReduceMax<axes=[1,3]>(x) }}",
    "ReduceMin": f"{ROWS} {{ y = ReduceMin<axes=[2]>(x) }}",
    "ReduceL1": f"{IMAGE} {{ y = ReduceL1<axes=[1]>(x) }}",
    "ReduceL2": f"{IMAGE} {{ y = ReduceL2<axes=[1,2,3]>(x) }}",
    "BatchNormalization": f"{IMAGE} <float[4] w, float[4] b, float[4] m, "
    f"float[4] v = {{0.5, 2, 1, 0.25}}> {{ y = BatchNormalization<epsilon=0.01>(x, w, b, m, v) }}",
    "BatchNormalization of rows": f"{ROWS} <float[3] w, float[3] b, float[3] m, "
    f"float[3] v = {{0.5, 2, 1}}> {{ y = BatchNormalization(x, w, b, m, v) }}",
    "InstanceNormalization": f"{IMAGE} <float[4] w, float[4] b> {{ "
    f"y = InstanceNormalization<epsilon=0.01>(x, w, b) }}",
    "PRelu of one slope": f"{IMAGE} <float w> {{ y = PRelu(x, w) }}",
    "Resize by other factors": f"{IMAGE} <int64[4] sizes = {{1, 4, 9, 4}}> {{ "
    f"y = Resize<mode=\"nearest\", coordinate_transformation_mode=\"asymmetric\", "
    f"nearest_mode=\"floor\">(x, , , sizes) }}",
    "Resize linear": f"{IMAGE} <float[4] scales = {{1, 1, 2, 1.5}}> {{ "
    f"y = Resize<mode=\"linear\">(x, , scales) }}",
    "Resize linear, smaller": f"{IMAGE} <int64[4] sizes = {{1, 4, 4, 3}}> {{ "
    f"y = Resize<mode=\"linear\", coordinate_transformation_mode=\"pytorch_half_pixel\">"
    f"(x, , , sizes) }}",
    "Resize linear by corners": f"{IMAGE} <int64[4] sizes = {{1, 4, 9, 12}}> {{ "
    f"y = Resize<mode=\"linear\", coordinate_transformation_mode=\"align_corners\">"
    f"(x, , , sizes) }}",
}  # fmt: skip
"""Graphs by the operator that their name begins with; weights are filled in by `graph`."""


def graph(name: str) -> Model:
    """The graph, with random weights and known shapes."""
    rng = np.random.default_rng(0)
    opset = 20 if name.split()[0] in ("Gelu", "Mish") else 17
    return shaped(f"g {_filled(CASES[name], rng)}", opset)


def int8(name: str) -> Model:
    """The graph with its input quantized, and its weight where the layer has an int8 form."""
    model = quantize(graph(name), "x", lo=-127, scale=0.02)
    if has_int8(name):
        weight(model, "w", lo=-127, scale=0.015)
    return model


def several_scales() -> Model:
    """A grouped convolution whose channels have scales of their own within a group."""
    model = quantize(graph("Conv grouped"), "x", lo=-127, scale=0.02)
    return weight(model, "w", lo=-127, scale=np.linspace(0.01, 0.02, 6), axis=0)


def has_int8(name: str) -> bool:
    """Whether the layer runs in int8 where its weight and its input are quantized."""
    return name.split()[0] in ("Conv", "Gemm", "MatMul") and "of two" not in name


def shaped(text: str, opset: int = 17) -> Model:
    """A graph whose output has the shape that it really has."""
    model = apply(parse(text, opset), InferShapes())[0]
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
