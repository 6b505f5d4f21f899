"""A quantized network taken apart: the float network and the range of each tensor."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.calibration.source_ranges import SourceRanges, source_ranges
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.pass_ import Trace
from passes.phases import CLEAN, FOLD
from tests.models.build import log_quantize, ops, parse, quantize, run, tensor, weight

CONV = """g (float[1,2,6,6] x) => (float[1,3,4,4] y) <float[3,2,3,3] w = {%s}> {
    c = Conv(x, w) y = %s(c)
}"""
WEIGHTS = np.random.default_rng(0).normal(size=(3, 2, 3, 3)).astype(np.float32)


def conv(function: str) -> Model:
    values = ", ".join(repr(float(v)) for v in WEIGHTS.reshape(-1))
    return parse(CONV % (values, function))


def apart(model: Model) -> SourceRanges:
    return source_ranges(model, (*CLEAN, *FOLD), Trace("recast"))


def ends(found: SourceRanges, name: str) -> tuple[float, float]:
    return float(found.ranges[name].low), float(found.ranges[name].high)


def test_ranges_are_what_the_quantizers_represent() -> None:
    model = conv("Sigmoid")
    quantize(model, "x", qtype="uint8", zero_point=10, scale=np.float32(0.5))
    quantize(model, "c", qtype="float8e4m3fn", scale=np.float32(0.01))
    log_quantize(model, "y", 3.0)
    found = apart(model)
    assert not found.model.nodes(*QUANTIZERS)
    assert ends(found, "x") == (-5.0, 122.5)
    assert ends(found, "c") == pytest.approx((-4.48, 4.48))
    assert ends(found, "y") == (-3.0, 3.0)
    assert "uint8 quantizer" in found.ranges["x"].source
    assert "logarithmic" in found.ranges["y"].source
    assert found.wide == {"c"}


def test_weights_keep_the_rounding_of_the_source() -> None:
    model = weight(conv("Sigmoid"), "w", qtype="int4", scale=np.float32(0.25))
    found = apart(model)
    values = array(tensor(found.model, "w"))
    assert values is not None
    np.testing.assert_array_equal(values, np.clip(np.rint(WEIGHTS / 0.25), -8, 7) * 0.25)
    assert found.grids["w"].qtype.name == "int4"
    assert "w" not in found.ranges


def test_a_quantizer_that_clamps_at_zero_becomes_a_relu() -> None:
    """Runtimes drop a Relu before such a quantizer; without it, negative values would come back."""
    model = quantize(conv("Neg"), "c", qtype="uint8", scale=np.float32(0.01))
    found = apart(model)
    assert ops(found.model) == ["Conv", "Relu", "Neg"]
    x = np.random.default_rng(1).normal(size=(1, 2, 6, 6)).astype(np.float32) * 0.1
    np.testing.assert_allclose(run(found.model, x)[0], run(model, x)[0], atol=0.00501)
    assert ends(found, "c.clipped") == pytest.approx((0.0, 2.55))


def test_nothing_is_clamped_twice() -> None:
    model = conv("Relu")
    quantize(model, "y", qtype="uint8", scale=np.float32(0.01))
    assert ops(apart(model).model) == ["Conv", "Relu"]


def test_of_a_chain_the_smallest_and_of_branches_all() -> None:
    model = parse("g (float[4] x) => (float[4] y, float[4] z) { y = Neg(x) z = Abs(x) }")
    quantize(model, "x", scale=np.float32(0.1))
    quantize(model, "x", scale=np.float32(0.2))  # before the other: x -> 0.2 -> 0.1
    assert ends(apart(model), "x") == pytest.approx((-12.8, 12.7))


def test_a_quantizer_between_a_layer_and_its_norm_gives_way() -> None:
    values = ", ".join(repr(float(v)) for v in WEIGHTS.reshape(-1))
    model = parse(f"""g (float[1,2,6,6] x) => (float[1,3,4,4] y) <float[3,2,3,3] w = {{{values}}},
        float[3] a = {{1, 2, 3}}, float[3] b = {{0, 1, 0}}, float[3] m = {{0, 0, 1}},
        float[3] v = {{1, 4, 9}}> {{
        c = Conv(x, w) n = BatchNormalization(c, a, b, m, v) y = Relu(n)
    }}""")
    weight(model, "w", scale=np.full(3, 0.02, np.float32), zero_point=np.zeros(3, int), axis=0)
    quantize(model, "c", scale=np.float32(0.1))
    quantize(model, "y", scale=np.float32(0.1))
    found = apart(model)
    assert ops(found.model) == ["Conv", "Relu"]
    assert set(found.ranges) == {"y"}


def test_nodes_get_names_of_their_own() -> None:
    """Some side files list nodes by name."""
    model = quantize(conv("Sigmoid"), "x")
    names = [node.name for node in apart(model).model.nodes()]
    assert all(names)
    assert len(set(names)) == len(names)
