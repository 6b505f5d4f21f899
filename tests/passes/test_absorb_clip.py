"""A Clip in front of a quantizer is the quantizer's range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.edit import insert
from onnxq.quant.qparams import QParams, Reader
from onnxq.quant.qtypes import qtype
from passes.absorb_clip import AbsorbClip
from tests.models.build import apply, bit_equal, ops, parse, quantize, reasons, run

X = np.linspace(-40, 40, 1001, dtype=np.float32)
CLIP = """g (float[N] x) => (float[N] y) <float lo = {%s}, float hi = {%s}> {
    c = Clip(x, lo, hi)
    y = Neg(c)
}"""


@settings(max_examples=60, deadline=None)
@given(
    low=st.floats(-30, 0, width=32),
    high=st.floats(0.5, 30, width=32),
    scale=st.floats(2**-7, 0.375, width=32),
    zero=st.integers(-60, 60),
)
def test_exact_for_every_bound(low: float, high: float, scale: float, zero: int) -> None:
    model = parse(CLIP % (f"{low:.9f}", f"{high:.9f}"))
    quantize(model, "c", scale=np.float32(scale), zero_point=zero)
    made, trace = apply(model, AbsorbClip())
    if trace.rewrites:
        assert "Clip" not in ops(made)
    assert bit_equal(run(made, X), run(model, X))


def test_relu6_of_a_trained_scale() -> None:
    model = quantize(parse(CLIP % (0, 6)), "c", qtype="uint8", scale=np.float32(0.05))
    made, _ = apply(model, AbsorbClip())
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert (params.lo, params.hi) == (0, 120)


@settings(max_examples=60, deadline=None)
@given(
    scale=st.floats(2**-7, 0.375, width=32),
    other=st.sampled_from([1.0, 1.0, 1.5]),
    zero=st.integers(-100, 100),
    high=st.integers(1, 127),
)
def test_a_quantizer_in_front_of_the_clip(scale: float, other: float, zero: int, high: int) -> None:
    """It goes where the one behind does its work, and stays where it does not."""
    model = quantize(parse(CLIP % (0, 6)), "c", scale=np.float32(scale), zero_point=-128)
    quantize(model, "x", scale=np.float32(scale * other), zero_point=zero, hi=max(high, zero + 1))
    made, _ = apply(model, AbsorbClip())
    idle = other == 1 and max(high, zero + 1) - zero >= min(255, round(6 / np.float32(scale)))
    assert ops(made).count("FakeQuantize") == (1 if idle else 2)
    assert "Clip" not in ops(made)
    assert bit_equal(run(made, X), run(model, X))


def test_a_quantizer_that_others_read_stays() -> None:
    body = """g (float[N] x) => (float[N] y) <float lo = {0}, float hi = {6}> {
        c = Clip(x, lo, hi)
        y = Add(c, x)
    }"""
    model = quantize(parse(body), "c", scale=np.float32(0.1))
    quantize(model, "x", scale=np.float32(0.1))
    made, _ = apply(model, AbsorbClip())
    assert ops(made).count("FakeQuantize") == 2
    assert bit_equal(run(made, X), run(model, X))


def test_old_clip_with_attributes() -> None:
    model = parse(
        "g (float[N] x) => (float[N] y) { c = Clip<min=0.0, max=6.0>(x) y = Neg(c) }",
        opset=10,
        ir_version=5,
    )
    quantize(model, "c", qtype="uint8", scale=np.float32(0.1))
    made, trace = apply(model, AbsorbClip())
    assert len(trace.rewrites) == 1
    assert bit_equal(run(made, X), run(model, X))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("c = Clip(x, lo, hi) y = Neg(c) z = Abs(c)", "other consumers read it"),
        ("m = ReduceMin<keepdims=0>(x) c = Clip(x, m, hi) y = Neg(c) z = Abs(x)", "run time"),
        ("c = Clip(x, hi, hi) y = Neg(c) z = Abs(x)", "exclude zero"),
    ],
)
def test_reasons(body: str, reason: str) -> None:
    model = parse(
        "g (float[N] x) => (float[N] y, float[N] z) <float lo = {0}, float hi = {6}> {" + body + "}"
    )
    clip = next(n for n in model.nodes("Clip"))
    readers = (Reader("y", 0),) if len(clip.outputs[0].outputs) > 1 else None
    params = QParams("c", qtype("int8"), np.float32(0.1), 0)
    insert(
        model,
        clip.outputs[0],
        lambda a, b, g: fake_quantize.make(model, a, b, params, g),
        readers,
    )
    made, trace = apply(model, AbsorbClip())
    assert trace.rewrites == []
    assert reason in reasons(trace)
    assert bit_equal(run(made, X), run(model, X))


def test_float8_keeps_its_whole_range() -> None:
    model = quantize(parse(CLIP % ("0", "6")), "c", qtype="float8e4m3fn")
    made, trace = apply(model, AbsorbClip())
    assert "Clip" in ops(made)
    assert "full range of float8e4m3fn" in reasons(trace)


RELU = "g (float[N] x) => (float[N] y) { c = Relu(x) y = Neg(c) }"


@pytest.mark.parametrize(("kind", "zero"), [("uint8", 0), ("int8", -128), ("uint16", 0)])
def test_relu_where_codes_start_at_zero(kind: str, zero: int) -> None:
    model = quantize(parse(RELU), "c", qtype=kind, scale=np.float32(0.05), zero_point=zero)
    made, trace = apply(model, AbsorbClip(relu=True))
    assert len(trace.rewrites) == 1
    assert "Relu" not in ops(made)
    assert bit_equal(run(made, X), run(model, X))
    before, after = (params_of(m.nodes(FAKE_QUANTIZE)[0]) for m in (model, made))
    assert (after.lo, after.hi) == (before.lo, before.hi)
    kept, trace = apply(model, AbsorbClip())
    assert "Relu" in ops(kept)
    assert trace.rewrites == []


def test_relu_stays_where_codes_go_below_zero() -> None:
    model = quantize(parse(RELU), "c", qtype="int8", scale=np.float32(0.05))
    made, trace = apply(model, AbsorbClip(relu=True))
    assert "Relu" in ops(made)
    assert "codes below zero" in reasons(trace)


WHOLE = """g (float[N] x) => (float[N] y)
    <float low = {%s}, float high = {%s}> { n = Neg(x) c = Clip(n, low, high) y = Neg(c) }"""


@pytest.mark.parametrize(("kind", "zero"), [("uint8", 0), ("uint8", 100), ("int8", -128)])
@pytest.mark.parametrize(("low", "high"), [("0", "6"), ("0", "0.37"), ("-1.03", "2.51")])
def test_a_clip_within_a_whole_range_stays_between_two_quantizers(
    kind: str, zero: int, low: str, high: str
) -> None:
    scale = np.float32(0.05)
    model = quantize(parse(WHOLE % (low, high)), "c", qtype=kind, scale=scale, zero_point=zero)
    made, trace = apply(model, AbsorbClip(whole=True))
    assert len(trace.rewrites) == 1
    assert ops(made) == ["Neg", "FakeQuantize", "Clip", "FakeQuantize", "Neg"]
    given = params_of(model.nodes(FAKE_QUANTIZE)[0])
    for node in made.nodes(FAKE_QUANTIZE):
        assert params_of(node, "").grid_key() == given.with_(tensor="").grid_key()
    # Every code, and both sides of every border between two.
    codes = np.arange(-300, 301, dtype=np.float32)
    borders = (codes + np.float32(0.5)) * scale
    ends = np.nextafter(borders, np.float32([[-np.inf], [np.inf]]))
    x = np.concatenate([codes * scale, borders, *ends])
    assert bit_equal(run(made, x), run(model, x))
    again, trace = apply(made, AbsorbClip(whole=True))
    assert trace.rewrites == []
    assert "quantizers around it" in reasons(trace)
    assert ops(again) == ops(made)


def test_a_clip_beyond_a_whole_range_is_removed() -> None:
    scale = np.float32(0.01)
    model = quantize(parse(WHOLE % ("0", "6")), "c", qtype="uint8", scale=scale)
    made, _ = apply(model, AbsorbClip(whole=True))
    assert ops(made) == ["Neg", "FakeQuantize", "Neg"]
    assert bit_equal(run(made, X), run(model, X))


def test_what_others_read_before_a_clip_is_not_rounded() -> None:
    body = WHOLE.replace("y = Neg(c)", "y = Add(c, n)") % ("0", "6")
    model = quantize(parse(body), "c", qtype="uint8", scale=np.float32(0.05))
    made, trace = apply(model, AbsorbClip(whole=True))
    assert len(made.nodes(FAKE_QUANTIZE)) == 1
    assert "others read its input" in reasons(trace)
