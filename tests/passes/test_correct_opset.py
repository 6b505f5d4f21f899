from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import OnnxqError
from onnxq.running import sessions
from passes.correct_opset import CorrectOpset
from tests.models.build import apply, parse, reasons

NORMALIZED = """g (float[2,4] x, float[4] w) => (float[2,4] y) {
    n = LayerNormalization <axis = -1> (x, w)
    y = HardSwish(n)
}"""


def test_the_stamp_becomes_the_first_opset_that_knows_every_operator() -> None:
    wrong = parse(NORMALIZED, opset=13)
    with pytest.raises(OnnxqError):
        sessions.reference(wrong)
    right, trace = apply(wrong, CorrectOpset())
    assert right.opset == 17
    assert "LayerNormalization" in trace.rewrites[0]
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    feeds = {"x": x, "w": np.ones(4, np.float32)}
    want = sessions.reference(parse(NORMALIZED, opset=17)).run(feeds)["y"]
    assert np.array_equal(sessions.reference(right).run(feeds)["y"], want)


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
    assert np.allclose(sessions.reference(right).run({"x": x})["y"], want, atol=1e-6)


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


OLD_FORMS = """g (float[2,3,4] x) => (float[1,2,3,4] y, float[2,3,1] m)
<int8[4,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, float s = {0.1}> {
    f = DequantizeLinear(w, s)
    p = MatMul(x, f)
    c = Relu(p)
    r = ReduceMean <axes = [-1], keepdims = 1> (c)
    m = Softmax <axis = 1> (r)
    y = Unsqueeze <axes = [0]> (c)
}"""


def test_nodes_of_an_older_opset_than_the_stamp_are_carried_to_it() -> None:
    """Their meaning too: Softmax over axis 1 took in all that followed before opset 13."""
    wrong = parse(OLD_FORMS, opset=21)
    with pytest.raises(OnnxqError):
        sessions.reference(wrong)
    right, trace = apply(wrong, CorrectOpset())
    assert right.opset == 21
    assert "nodes of opset 12 are carried to opset 21" in trace.rewrites[0]
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    want = sessions.reference(parse(OLD_FORMS, opset=12)).run({"x": x})
    got = sessions.reference(right).run({"x": x})
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
    assert apply(right, CorrectOpset())[1].rewrites == []


def test_in_a_mixed_file_only_nodes_that_the_stamp_does_not_know_are_carried() -> None:
    """Clip with two inputs is of opset 11 at least, Slice without of 9 at most."""
    body = """g (float[2,3,4] x) => (float[2,3,4] y, float[2,3,2] z) <float zero = {0}> {
        c = Clip(x, zero)
        y = Softmax <axis = 1> (c)
        z = Slice <starts = [1], ends = [3], axes = [2]> (c)
    }"""
    right, trace = apply(parse(body, opset=17), CorrectOpset())
    assert "nodes whose form is older" in trace.rewrites[0]
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    got = sessions.reference(right).run({"x": x})
    np.testing.assert_array_equal(got["z"], np.maximum(x, 0)[:, :, 1:3])
    assert np.allclose(got["y"].sum(1), 1)  # as the stamp says: over one axis


def test_old_forms_that_cannot_be_carried_stay_with_the_reason() -> None:
    body = """g (float[2,3] x) => (float[2,3] y) {
        b = Add <axis = 0, broadcast = 1> (x, x)
        y = Relu(b)
    }"""
    done, trace = apply(parse(body, opset=13), CorrectOpset())
    assert trace.rewrites == []
    assert "the opset stamp 13 is too new for it" in reasons(trace)
    assert done.nodes("Add")[0].attrs["axis"] == 0
