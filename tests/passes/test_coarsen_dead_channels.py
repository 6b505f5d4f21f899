"""Channels with next to no weights: integer kernels add their bias, and nothing else moves."""

from __future__ import annotations

import numpy as np

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.edit import producer
from onnxq.graph import Model
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from onnxq.running.sessions import session
from onnxq.workflows.convert import convert
from passes.coarsen_dead_channels import CoarsenDeadChannels
from tests.models.build import apply, parse, quantize, reasons, weight

WEIGHTS = np.float32([[1.0, -0.5], [2e-12, 1e-12], [0.25, 2.0], [1e-16, -1e-16]])
STEPS = (np.abs(WEIGHTS).max(axis=1) / 127).astype(np.float32)
BIAS = np.float32([0.5, 3.0, -0.5, -2.0])


def network(**fields: object) -> Model:
    """A convolution of four channels, of which two are dead."""
    model = parse("""g (float[1, 2, 8, 8] x) => (float[1, 4, 8, 8] y)
        <float[4, 2, 1, 1] w = {1.0, -0.5, 2e-12, 1e-12, 0.25, 2.0, 1e-16, -1e-16},
         float[4] b = {0.5, 3.0, -0.5, -2.0}> { y = Conv(x, w, b) }""")
    model = quantize(
        model, "x", **{"qtype": "uint8", "scale": np.float32(0.02), "zero_point": 128, **fields}
    )
    weight(model, "w", scale=STEPS, axis=0)
    return quantize(model, "y", qtype="uint8", scale=np.float32(0.05), zero_point=128)


def grid(model: Model) -> QParams:
    (layer,) = model.nodes("Conv")
    node = producer(layer.inputs[1], FAKE_QUANTIZE)
    assert node is not None
    return params_of(node)


def test_biases_fit_and_other_channels_stay() -> None:
    made, trace = apply(network(), CoarsenDeadChannels())
    scale = grid(made).scale
    assert (np.abs(BIAS) / (0.02 * scale) <= qtype("int32").hi).all()
    np.testing.assert_array_equal(scale[[0, 2]], STEPS[[0, 2]])
    assert "2 channels" in trace.rewrites[0]
    again, trace = apply(made, CoarsenDeadChannels())
    assert not trace.rewrites
    np.testing.assert_array_equal(grid(again).scale, scale)


def test_layers_without_an_integer_kernel_stay() -> None:
    model = network(qtype="uint16", zero_point=32768)
    made, trace = apply(model, CoarsenDeadChannels())
    np.testing.assert_array_equal(grid(made).scale, STEPS)
    assert not trace.rewrites


def test_a_weight_that_others_read_stays() -> None:
    model = parse("""g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y, float[1, 1, 4, 4] z)
        <float[1, 1, 1, 1] w = {1e-12}, float[1] b = {2.0}, float[1] c = {0.0}> {
        y = Conv(x, w, b)
        z = Conv(x, w, c)
    }""")
    model = quantize(model, "x", qtype="uint8", scale=np.float32(0.02), zero_point=128)
    weight(model, "w", scale=np.float32(1e-14))
    _, trace = apply(model, CoarsenDeadChannels())
    assert not trace.rewrites
    assert "other layers read" in reasons(trace)


def test_onnxruntime_computes_what_was_trained() -> None:
    source = network()
    done = convert(source, "onnxruntime")
    assert done.proven
    x = np.random.default_rng(0).normal(size=(1, 2, 8, 8)).astype(np.float32)
    was = session(source, "reference").run({"x": x})["y"]
    for kind in ("reference", "deployed"):
        now = session(done.model, kind).run({"x": x})["y"]
        np.testing.assert_array_equal(now, was)
