"""Ranges grow by the one code a target cannot leave out."""

from __future__ import annotations

import numpy as np

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from passes.widen_range import WidenRange, is_narrow
from tests.models.build import apply, bit_equal, parse, quantize, reasons, run, weight

BODY = "g (float[N] x) => (float[N] y) { r = Relu(x) y = Neg(r) }"


def test_symmetric_range_gets_its_last_code() -> None:
    model = quantize(parse(BODY), "x", scale=np.float32(0.1), lo=-127)
    made, trace = apply(model, WidenRange())
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert (params.lo, params.hi) == (-128, 127)
    assert "one step" in trace.rewrites[0]


def test_nothing_changes_where_the_tensor_is_never_negative() -> None:
    model = quantize(parse(BODY), "r", scale=np.float32(0.1), lo=-127)
    made, _ = apply(model, WidenRange())
    x = np.linspace(-40, 40, 101, dtype=np.float32)
    assert bit_equal(run(made, x), run(model, x))


def test_values_at_the_end_move_by_one_step() -> None:
    model = quantize(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }"), "x", lo=-127)
    made, _ = apply(model, WidenRange())
    x = np.float32([-13, -12.76, -12.74, 13])
    np.testing.assert_allclose(run(made, x)[0] - run(model, x)[0], [0.1, 0.1, 0, 0], atol=1e-6)


def test_much_narrower_ranges_are_left_with_the_reason() -> None:
    model = quantize(parse(BODY), "x", lo=-8, hi=7)
    _, trace = apply(model, WidenRange())
    assert trace.rewrites == []
    assert "240 codes narrower" in reasons(trace)


def test_weights_are_left() -> None:
    model = parse("g (float[1,1] x) => (float[1,1] y) <float[1,1] w = {3}> { y = MatMul(x, w) }")
    weight(model, "w", lo=-127)
    _, trace = apply(model, WidenRange())
    assert trace.rewrites == []
    assert trace.skips == []


def test_float8_has_its_whole_range_already() -> None:
    made, trace = apply(quantize(parse(BODY), "r", qtype="float8e4m3fn"), WidenRange())
    assert params_of(made.nodes(FAKE_QUANTIZE)[0]).hi == 448
    assert not trace.rewrites
    assert not trace.skips


def test_what_would_be_widened_is_known_before() -> None:
    assert is_narrow(quantize(parse(BODY), "x", lo=-127))
    assert not is_narrow(quantize(parse(BODY), "x"))
    assert not is_narrow(quantize(parse(BODY), "x", lo=-8, hi=7))
