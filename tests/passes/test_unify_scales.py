from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from onnxq.pipeline import Pipeline
from onnxq.quant.qparams import QParams, Reader
from onnxq.quant.qtypes import qtype
from passes.unify_scales import UnifyScales
from tests.checks.applied import apply_checked
from tests.models.build import apply, ops, parse, reasons, tensor
from tests.models.canonical import expose, grid, put

FORK = """g (float[2,3] x) => (float[2,3] y, float[2,3] z)
   { a = Relu(x)  y = Add(a, a)  z = Neg(a) }"""


def forked(*numbers: int) -> Model:
    """FORK with its three uses of 'a' quantized apart."""
    model = parse(FORK)
    uses = (Reader("y", 0), Reader("y", 1), Reader("z", 0))
    for number, use in zip(numbers, uses, strict=True):
        put(model, tensor(model, "a"), grid("a", number), [use])
    assert len(model.nodes(FAKE_QUANTIZE)) == 3
    return model


def test_equal_grids_become_one_quantizer() -> None:
    applied = apply_checked(forked(0, 0, 0), UnifyScales())
    assert ops(applied.model).count("FakeQuantize") == 1
    assert len(applied.trace.rewrites) == 2
    assert not applied.trace.skips


def test_different_grids_are_left_alone_with_the_reason() -> None:
    applied = apply_checked(forked(0, 2, 0), UnifyScales())
    assert ops(applied.model).count("FakeQuantize") == 2
    assert applied.reasons() == ["'a' has quantizers with different grids"]


def test_quantizers_that_are_graph_outputs_keep_their_names() -> None:
    model = forked(0, 0, 0)
    for node in model.nodes(FAKE_QUANTIZE):
        node.outputs[0].shape = [2, 3]
        expose(model, node.outputs[0])
    applied = apply_checked(model, UnifyScales())
    assert ops(applied.model).count("FakeQuantize") == 1
    assert ops(applied.model).count("Identity") == 2


def test_quantizer_beside_the_tensor_serves_bodies() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y, float[2] z) {
             a = Relu(x)
             z = Neg(a)
             y = If (c) <then_branch = t () => (float[2] r) { r = Sigmoid(a) },
                         else_branch = e () => (float[2] q) { q = Abs(a) }> }"""
    )
    for reader in ("r", "q", "z"):
        put(model, tensor(model, "a"), grid("a"), [Reader(reader, 0)])
    move_into_bodies(model, "r", "q")
    applied = apply_checked(model, UnifyScales())
    assert len(applied.model.nodes(FAKE_QUANTIZE)) == 1
    assert applied.model.nodes(FAKE_QUANTIZE)[0].owner is applied.model.graph


def test_quantizers_in_different_bodies_cannot_share() -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
             a = Relu(x)
             y = If (c) <then_branch = t () => (float[2] r) { r = Sigmoid(a) },
                         else_branch = e () => (float[2] q) { q = Abs(a) }> }"""
    )
    for reader in ("r", "q"):
        put(model, tensor(model, "a"), grid("a"), [Reader(reader, 0)])
    move_into_bodies(model, "r", "q")
    applied = apply_checked(model, UnifyScales())
    assert applied.reasons() == ["the same quantizer of 'a' is in another body"]


def move_into_bodies(model: Model, *results: str) -> None:
    """Let the quantizers in front of these results stand in the same body."""
    for name in results:
        reader = tensor(model, name).inputs[0]
        quantizer = reader.inputs[0].inputs[0]
        model.graph.nodes[:] = [n for n in model.graph.nodes if n is not quantizer]
        quantizer.owner = reader.owner
        reader.owner.nodes.append(quantizer)


def test_widest_grid_wins_on_request() -> None:
    result, trace = apply(forked(1, 0, 4), UnifyScales(widest=True))
    (node,) = result.nodes(FAKE_QUANTIZE)
    # -128..127 by 0.05 reaches further than -127..127 by 0.03 and -8..7 by 0.3
    assert params_of(node).same_grid(grid("a", 0))
    assert sum("takes the widest grid of 'a'" in text for text in trace.rewrites) == 2
    _, again = apply(result, UnifyScales(widest=True))
    assert not again.rewrites


def test_of_equally_wide_grids_the_finest_wins() -> None:
    model = parse(FORK)
    coarse = QParams("a", qtype("int4"), np.float32(1.6), np.int64(0), lo=-7)
    fine = QParams("a", qtype("int8"), np.float32(0.1), np.int64(0), lo=-112, hi=112)
    put(model, tensor(model, "a"), coarse, [Reader("y", 0)])
    put(model, tensor(model, "a"), fine, [Reader("z", 0)])
    result, _ = apply(model, UnifyScales(widest=True))
    assert params_of(result.nodes(FAKE_QUANTIZE)[0]).same_grid(fine)


def test_no_grid_covers_all() -> None:
    model = parse(FORK)
    for use, kind in (("y", "uint8"), ("z", "int8")):
        params = QParams("a", qtype(kind), np.float32(0.1), np.int64(0))
        put(model, tensor(model, "a"), params, [Reader(use, 0)])
    result, trace = apply(model, UnifyScales(widest=True))
    assert len(result.nodes(FAKE_QUANTIZE)) == 2
    assert "none of its quantizers covers" in reasons(trace)


def test_per_channel_and_per_tensor_are_not_mixed() -> None:
    model = parse(FORK)
    channels = QParams("a", qtype("int8"), np.ones(3), np.zeros(3), axis=1)
    put(model, tensor(model, "a"), channels, [Reader("y", 0)])
    put(model, tensor(model, "a"), grid("a"), [Reader("z", 0)])
    result, trace = apply(model, UnifyScales(widest=True))
    assert len(result.nodes(FAKE_QUANTIZE)) == 2
    assert "per tensor and per channel" in reasons(trace)


@pytest.mark.parametrize("text", ["unify-scales", "unify-scales{widest=true}"])
def test_text_form(text: str) -> None:
    assert str(Pipeline.parse(text)) == text


def float8_fork(first: str, second: str) -> Model:
    """FORK with two uses of 'a' in types of their own; the first reaches further."""
    model = parse(FORK)
    for kind, scale, use in ((first, 2, Reader("y", 0)), (second, 1, Reader("z", 0))):
        params = QParams("a", qtype(kind), np.float32(scale), np.int64(0))
        put(model, tensor(model, "a"), params, [use])
    return model


def test_widest_grid_of_one_float8_type() -> None:
    applied = apply_checked(float8_fork("float8e4m3fn", "float8e4m3fn"), UnifyScales(widest=True))
    (node,) = applied.model.nodes(FAKE_QUANTIZE)
    assert params_of(node).scale == 2


@pytest.mark.parametrize("other", ["int8", "float8e5m2"])
def test_widest_grid_of_different_values_is_not_chosen(other: str) -> None:
    applied = apply_checked(float8_fork("float8e4m3fn", other), UnifyScales(widest=True))
    assert len(applied.model.nodes(FAKE_QUANTIZE)) == 2
    assert "it is quantized to types whose values differ" in applied.reasons()
