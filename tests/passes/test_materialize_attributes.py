"""Defaults written out, and nothing else changed."""

from __future__ import annotations

import numpy as np

from passes.materialize_attributes import MaterializeAttributes
from tests.models.build import apply, bit_equal, parse, run

CONV = (
    """g (float[1,2,5,5] x) => (float[1,3,A,B] y) <float[3,2,2,2] w> {{ y = Conv{attrs}(x, w) }}"""
)


def conv(attrs: str = ""):  # type: ignore[no-untyped-def]
    values = ", ".join(str(round(v, 3)) for v in np.random.default_rng(0).normal(size=24))
    body = CONV.format(attrs=attrs).replace("float[3,2,2,2] w", f"float[3,2,2,2] w = {{{values}}}")
    return parse(body)


def test_a_convolution_says_it_all() -> None:
    before = conv()
    after, trace = apply(before, MaterializeAttributes())
    (node,) = after.nodes("Conv")
    assert node.attrs == {
        "auto_pad": "NOTSET",
        "group": 1,
        "kernel_shape": [2, 2],
        "strides": [1, 1],
        "dilations": [1, 1],
        "pads": [0, 0, 0, 0],
    }
    assert "pads=[0, 0, 0, 0]" in trace.rewrites[0]
    x = np.random.default_rng(1).normal(size=(1, 2, 5, 5)).astype(np.float32)
    assert bit_equal(run(after, x), run(before, x))


def test_what_is_given_stays_and_automatic_pads_stay_automatic() -> None:
    after, _ = apply(conv('<auto_pad="SAME_UPPER", strides=[2,2]>'), MaterializeAttributes())
    (node,) = after.nodes("Conv")
    assert node.attrs["strides"] == [2, 2]
    assert "pads" not in node.attrs


def test_defaults_are_those_of_the_opset() -> None:
    body = "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }"
    for opset, axis in ((11, 1), (13, -1)):
        before = parse(body, opset=opset)
        after, _ = apply(before, MaterializeAttributes())
        assert after.nodes("Softmax")[0].attrs == {"axis": axis}
        x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
        assert bit_equal(run(after, x), run(before, x))


def test_strings_and_floats() -> None:
    after, _ = apply(
        parse("g (float[2,2] x) => (float[2,2] y) { y = Gemm(x, x) }"), MaterializeAttributes()
    )
    assert after.nodes("Gemm")[0].attrs == {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
