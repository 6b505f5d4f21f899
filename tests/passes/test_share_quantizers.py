"""A tensor that some consumers read rounded, for targets that round it for all."""

from __future__ import annotations

import numpy as np
import pytest

import onnxq
from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.edit import insert, set_input
from onnxq.graph import Model
from onnxq.quant.qparams import QParams, Reader
from onnxq.quant.qtypes import qtype
from passes.share_quantizers import ShareQuantizers
from tests.models.build import apply, bit_equal, parse, quantize, reasons, run

BODY = "g (float[1,8] x) => (float[1,8] y) { r = Neg(x) a = Sigmoid(r) b = Tanh(r) y = Add(a, b) }"
X = np.random.default_rng(0).normal(size=(1, 8)).astype(np.float32)


def partly(body: str = BODY, **fields: object) -> Model:
    """Sigmoid reads its input rounded, Tanh as it is."""
    model = quantize(parse(body), "r", **fields)
    tanh = model.nodes("Tanh")[0]
    set_input(tanh, 0, model.nodes("Neg")[0].outputs[0])
    return model


def test_all_consumers_read_what_some_read_rounded() -> None:
    made, trace = apply(partly(), ShareQuantizers())
    assert trace.rewrites == ["'r': rounded for (Tanh producing 'b') as well"]
    assert len(made.nodes(FAKE_QUANTIZE)) == 1
    assert bit_equal(run(made, X), run(quantize(parse(BODY), "r"), X))
    assert not bit_equal(run(made, X), run(partly(), X))
    assert apply(made, ShareQuantizers())[1].rewrites == []


def test_an_input_of_the_network() -> None:
    body = "g (float[1,8] x) => (float[1,8] y) { a = Sigmoid(x) b = Tanh(x) y = Add(a, b) }"
    model = quantize(parse(body), "x")
    set_input(model.nodes("Tanh")[0], 0, model.graph.inputs[0])
    made, _ = apply(model, ShareQuantizers())
    assert bit_equal(run(made, X), run(quantize(parse(body), "x"), X))


def test_what_leaves_the_network_is_rounded_and_keeps_its_name() -> None:
    body = "g (float[1,8] x) => (float[1,8] r, float[1,8] y) { r = Neg(x) y = Tanh(r) }"
    model = quantize(parse(body), "r")
    made_by = model.nodes("Neg")[0].outputs[0]
    quantizer = model.nodes(FAKE_QUANTIZE)[0]
    model.graph.outputs[0] = made_by  # what leaves is not rounded
    made_by.name, quantizer.outputs[0].name = "r", "r.rounded"
    want = run(quantize(parse(body), "r"), X)
    made, trace = apply(model, ShareQuantizers())
    assert trace.rewrites == ["'r': rounded for the network output as well"]
    assert [o.name for o in made.graph.outputs] == ["r", "y"]
    assert bit_equal(run(made, X), want)


def test_several_grids_are_left_alone() -> None:
    model = partly()
    params = QParams("r", qtype("int8"), np.float32(0.3), 0)
    source = model.nodes("Neg")[0].outputs[0]
    uses = [Reader("b", 0)]
    insert(model, source, lambda x, y, g: fake_quantize.make(model, x, y, params, g), uses)
    made, trace = apply(model, ShareQuantizers())
    assert trace.rewrites == []
    assert len(made.nodes(FAKE_QUANTIZE)) == 2
    third = parse(BODY.replace("y = Add(a, b)", "c = Abs(r) s = Add(a, b) y = Add(s, c)"))
    quantize(third, "r")
    source = third.nodes("Neg")[0].outputs[0]
    for op in ("Tanh", "Abs"):
        set_input(third.nodes(op)[0], 0, source)
    insert(third, source, lambda x, y, g: fake_quantize.make(third, x, y, params, g), uses)
    _, trace = apply(third, ShareQuantizers())
    assert trace.rewrites == []
    assert "2 quantizers with different grids" in reasons(trace)


@pytest.mark.parametrize("backend", ["ppl-cuda", "rknn", "tengine"])
def test_targets_with_one_range_per_tensor_measure_what_it_costs(backend: str) -> None:
    model = partly(qtype="uint8", zero_point=128, scale=np.float32(0.05))
    done = onnxq.convert(model, backend)
    assert done.proven
    assert done.change is not None
    assert done.cost is not None
    assert 0 < done.cost.outputs[0].max < 0.05
    assert any("share-quantizers changes what the model computes" in note for note in done.notes)
    coarse = partly(qtype="uint8", zero_point=128, scale=np.float32(4.0))
    assert not onnxq.convert(coarse, backend).proven, "the cost has a limit"
