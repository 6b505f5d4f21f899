"""Transposes cancelled inside, and at the borders where channels-last images are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.graph import Model, from_proto
from onnxq.pipeline import Pipeline
from onnxq.running import sessions
from passes.infer_shapes import InferShapes
from passes.to_nhwc import ToNhwc
from tests.models.build import apply, bit_equal, ops, parse, quantize, run
from tests.models.networks import NETWORKS, quantized, samples

TO_FIRST, TO_LAST = "Transpose<perm=[0,3,1,2]>", "Transpose<perm=[0,2,3,1]>"
CHANNELS_LAST = f"""g (float[1,6,6,3] x) => (float[1,6,6,3] y)
<float[3,3,1,1] w = {{1, 2, 3, -1, 0.5, 2, 0.1, -0.2, 0.3}}, float[3] b = {{0.1, 0.2, 0.3}}>
{{
    a = {TO_FIRST}(x)       c = Conv(a, w)      d = {TO_LAST}(c)
    e = Add(d, b)           r = Relu(e)
    f = {TO_FIRST}(r)       g = Conv(f, w)      h = {TO_LAST}(g)
    s = Add(h, r)           m = Softmax(s)
    i = {TO_FIRST}(m)       j = MaxPool<kernel_shape=[1,1]>(i)
    y = {TO_LAST}(j)
}}"""


def image(shape: tuple[int, ...] = (1, 6, 6, 3)) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_only_the_borders_keep_a_transpose() -> None:
    before = parse(CHANNELS_LAST)
    after, _ = apply(before, ToNhwc())
    assert ops(after) == [
        *("Transpose", "Conv", "Add", "Relu", "Conv", "Add", "Softmax", "MaxPool", "Transpose"),
    ]
    (softmax,) = after.nodes("Softmax")
    assert softmax.attrs["axis"] == 1
    np.testing.assert_allclose(run(after, image())[0], run(before, image())[0], rtol=1e-6)


def test_quantizers_go_along() -> None:
    before = parse(CHANNELS_LAST)
    quantize(before, "e", scale=np.float32([0.1, 0.2, 0.3]), axis=3)
    quantize(before, "h")
    after, _ = apply(before, ToNhwc())
    assert ops(after).count("Transpose") == 2
    assert sorted(n.attrs.get("axis", 0) for n in after.nodes("onnxq::FakeQuantize")) == [0, 1]
    assert bit_equal(run(after, image()), run(before, image()))


def test_other_permutations_stay() -> None:
    """Attention swaps tokens and heads: that is no layout."""
    body = """g (float[1,2,3,4] x) => (float[1,3,2,4] y)
        { t = Transpose<perm=[0,2,1,3]>(x) y = Relu(t) }"""
    after, trace = apply(parse(body), ToNhwc())
    assert ops(after) == ["Transpose", "Relu"]
    assert not trace.rewrites


def test_operands_in_two_layouts_stay() -> None:
    body = f"""g (float[1,4,4,4] x, float[1,4,4,4] z) => (float[1,4,4,4] y)
        {{ t = {TO_FIRST}(x) y = Add(t, z) }}"""
    _, trace = apply(parse(body), ToNhwc())
    assert not trace.rewrites


@pytest.mark.parametrize("network", ["resnet", "mobilenet", "unet", "conv1d"])
def test_images_outside_have_channels_last(network: str) -> None:
    before = Pipeline(InferShapes()).run(quantized(network, find_backend("tensorrt"))).model
    step = ToNhwc(signature="nhwc")
    after, _ = apply(before, step)
    images = [t for t in (*after.graph.inputs, *after.graph.outputs) if len(t.shape or ()) > 2]
    assert ops(after).count("Transpose") == len(images)
    (feed,) = samples(network, 1)
    (want,) = sessions.reference(before).run(feed).values()
    last = np.moveaxis(feed["x"], 1, -1)
    assert list(after.graph.inputs[0].shape) == list(last.shape)
    (got,) = sessions.reference(after).run({"x": last}).values()
    if want.ndim > 2:
        want = np.moveaxis(want, 1, -1)
    np.testing.assert_array_equal(got, want)
    _, again = apply(after, step)
    assert not again.rewrites


def test_what_is_no_image_stays() -> None:
    before = from_proto(NETWORKS["transformer"]())
    after, trace = apply(before, InferShapes(), ToNhwc(signature="nhwc"))
    assert not trace.rewrites
    assert shapes(after) == shapes(before)


def test_a_model_with_channels_last_keeps_its_signature() -> None:
    before = parse(CHANNELS_LAST)
    after, _ = apply(before, ToNhwc(signature="nhwc"))
    assert shapes(after) == shapes(before)


def test_transposes_in_bodies_cancel_too() -> None:
    body = f"""g (bool c, float[1,4,4,3] x) => (float[1,4,4,3] y) {{
        y = If(c) <
            then_branch = t () => (float[1,4,4,3] a) {{
                u = {TO_FIRST}(x) v = Relu(u) a = {TO_LAST}(v) }},
            else_branch = e () => (float[1,4,4,3] b) {{ b = Neg(x) }}
        > }}"""
    before = parse(body)
    after, _ = apply(before, ToNhwc())
    assert not after.nodes("Transpose")
    for flag in (True, False):
        given = (np.array(flag), image((1, 4, 4, 3)))
        assert bit_equal(run(after, *given), run(before, *given))


def shapes(model: Model) -> list[list[object]]:
    return [list(t.shape or ()) for t in (*model.graph.inputs, *model.graph.outputs)]
