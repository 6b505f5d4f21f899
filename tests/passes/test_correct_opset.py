from __future__ import annotations

import numpy as np
import pytest

from onnxq import runtime
from onnxq.errors import OnnxqError
from passes.correct_opset import CorrectOpset
from tests.build import apply, parse, reasons

NORMALIZED = """g (float[2,4] x, float[4] w) => (float[2,4] y) {
    n = LayerNormalization <axis = -1> (x, w)
    y = HardSwish(n)
}"""


def test_the_stamp_becomes_the_first_opset_that_knows_every_operator() -> None:
    wrong = parse(NORMALIZED, opset=13)
    with pytest.raises(OnnxqError):
        runtime.reference(wrong)
    right, trace = apply(wrong, CorrectOpset())
    assert right.opset == 17
    assert "LayerNormalization" in trace.rewrites[0]
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    feeds = {"x": x, "w": np.ones(4, np.float32)}
    want = runtime.reference(parse(NORMALIZED, opset=17)).run(feeds)["y"]
    assert np.array_equal(runtime.reference(right).run(feeds)["y"], want)


def test_an_attribute_newer_than_the_stamp_counts_too() -> None:
    body = """g (float[2,4] x) => (float[M,N] y) <int64[2] s = {4, 2}>
    { y = Reshape <allowzero = 0> (x, s) }"""
    right, _ = apply(parse(body, opset=13), CorrectOpset())
    assert right.opset == 14


def test_operators_of_the_written_opset_keep_their_meaning() -> None:
    """Below opset 13 Softmax flattens: raising the stamp alone would change the numbers."""
    body = "g (float[2,3,4] x) => (float[2,3,4] y) { s = Softmax(x) y = HardSwish(s) }"
    right, _ = apply(parse(body, opset=11), CorrectOpset())
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    flat = np.exp(x.reshape(2, 12).astype(np.float64))
    soft = (flat / flat.sum(1, keepdims=True)).reshape(x.shape)
    want = soft * np.clip(soft / 6 + 0.5, 0, 1)
    assert np.allclose(runtime.reference(right).run({"x": x})["y"], want, atol=1e-6)


def test_a_right_stamp_and_private_operators_are_left_alone() -> None:
    body = "g (float[2] x) => (float[2] y) { a = Relu(x) y = OfSomeVendor(a) }"
    done, trace = apply(parse(body, opset=13), CorrectOpset())
    assert (done.opset, trace.rewrites, trace.skips) == (13, [], [])


def test_what_cannot_be_raised_stays_with_the_reason() -> None:
    """The second output of Dropout changed its type in opset 10."""
    body = """g (float[2] x) => (float[2] y, float[2] m) {
        d, m = Dropout(x)
        y = HardSwish(d)
    }"""
    done, trace = apply(parse(body, opset=9), CorrectOpset())
    assert done.opset == 9
    assert trace.rewrites == []
    assert "the opset stamp 9 is too old" in reasons(trace)
    assert "mask" in reasons(trace)
