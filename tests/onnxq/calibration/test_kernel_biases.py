"""Biases on the grid of the sums that onnxruntime's kernels make."""

from __future__ import annotations

import numpy as np

from onnxq.backend import find_backend
from onnxq.calibration.kernel_biases import round_biases
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.quant.qparams import Role
from onnxq.running.sessions import session
from onnxq.workflows.convert import convert
from tests.models.build import parse, quantize, tensor, weight

SX, SW, BIAS = 0.1, 0.02, np.array([0.1234, -0.5671], np.float32)


def network() -> Model:
    """A layer that reads its quantizer through a Transpose."""
    model = parse("""g (float[1, 64, 64, 2] x) => (float[1, 2, 64, 64] y)
        <float[2, 2, 1, 1] w = {1.0, -0.5, 0.25, 2.0}, float[2] b = {0.1234, -0.5671}> {
        t = Transpose<perm = [0, 3, 1, 2]>(x)
        y = Conv(t, w, b)
    }""")
    model = quantize(model, "x", qtype="uint8", scale=np.float32(SX), zero_point=128)
    weight(model, "w", scale=np.float32(SW))
    return quantize(model, "y", qtype="uint8", scale=np.float32(0.0613), zero_point=128)


def test_a_bias_is_a_multiple_of_the_step_of_its_sum() -> None:
    model = network()
    rows = len(model.qparams.rows)
    round_biases(model, find_backend("onnxruntime"))
    (layer,) = model.nodes("Conv")
    found = array(layer.inputs[2])
    assert found is not None
    step = np.float64(np.float32(SX)) * np.float64(np.float32(SW))
    np.testing.assert_allclose(found, np.rint(BIAS / step) * step, rtol=1e-6)
    assert not np.array_equal(found, BIAS)
    # The biases of the files stay float, and no other quantizer is moved.
    assert not list(model.qparams.of(Role.BIAS))
    assert len(model.qparams.rows) == rows
    assert model.nodes("Transpose")[0].outputs[0].outputs[0] is layer


def test_other_targets_add_float_biases() -> None:
    model = network()
    round_biases(model, find_backend("tensorrt"))
    np.testing.assert_array_equal(array(tensor(model, "b")), BIAS)


def test_both_sessions_compute_the_same() -> None:
    """Half a step of a sum decides where it lies on the edge between two codes."""
    x = np.random.default_rng(0).normal(size=(1, 64, 64, 2)).astype(np.float32)

    def moved(model: Model) -> int:
        written = convert(model, "onnxruntime", verify=False).model
        a, b = (session(written, kind).run({"x": x})["y"] for kind in ("reference", "deployed"))
        return int(np.count_nonzero(a != b))

    model = network()
    assert moved(model) > 10
    round_biases(model, find_backend("onnxruntime"))
    assert moved(model) == 0
