"""Float layers between quantizers stay float in onnxruntime's optimised session."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.graph import Model
from onnxq.running import sessions
from onnxq.workflows.convert import convert
from passes.guard_float_layers import GuardFloatLayers
from tests.checks.optimized import optimized_ops
from tests.models.build import apply, parse_filled, quantize, run

CONV = "g (float[1,4,8,8] x) => (float[1,6,6,6] z) {{ {body} }}"
GEMM = "g (float[3,4] x) => (float[3,6] z) { y = Gemm(x, w) z = Relu(y) }"
TURNED = "g (float[1,4,8,8] x) => (float[1,6,10,10] z) { z = ConvTranspose(x, w) }"
CASES = {
    "Conv": (CONV.format(body="z = Conv(x, w)"), (6, 4, 3, 3)),
    "Conv, Relu": (CONV.format(body="y = Conv(x, w) z = Relu(y)"), (6, 4, 3, 3)),
    "Gemm": (GEMM, (4, 6)),
    "ConvTranspose": (TURNED, (4, 6, 3, 3)),
}


def net(case: str, *tensors: str) -> Model:
    text, shape = CASES[case]
    model = parse_filled(text, w=shape)
    for name in tensors or ("x", "z"):
        quantize(model, name, scale=np.float32(0.03 if name == "x" else 0.2))
    return model


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_optimised_session_computes_the_float_layer(case: str) -> None:
    """Weights of one large value: rounded per tensor the others would be lost."""
    model = net(case)
    weight = next(t for n in model.nodes() for t in n.inputs if t.name == "w")
    weight.values = weight.values * 0.01
    weight.values.flat[0] = 3.0
    made, trace = apply(model, GuardFloatLayers())
    assert len(trace.rewrites) == 1
    assert len(made.nodes("Max")) == 1
    shape = [d or 1 for d in model.graph.inputs[0].shape]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    np.testing.assert_array_equal(run(made, x)[0], run(model, x)[0])
    done = convert(model, "onnxruntime")
    assert done.proven
    wanted = sessions.reference(done.model).run({"x": x})["z"]
    np.testing.assert_allclose(
        sessions.shipped(done.model).run({"x": x})["z"], wanted, atol=0.2 + 1e-5
    )
    assert not {"QLinearConv", "QGemm"} & set(optimized_ops(done.model))


def test_it_happens_once() -> None:
    made, _ = apply(net("Conv"), GuardFloatLayers())
    again, trace = apply(made, GuardFloatLayers())
    assert trace.rewrites == []
    assert len(again.nodes("Max")) == 1


@pytest.mark.parametrize("tensors", [("x",), ("z",), ("x", "z", "w")])
def test_others_are_left(tensors: tuple[str, ...]) -> None:
    """A layer that reads or writes floats, or whose weight is quantized, needs no guard."""
    made, trace = apply(net("Conv", *tensors), GuardFloatLayers())
    assert trace.rewrites == []
    assert made.nodes("Max") == []
