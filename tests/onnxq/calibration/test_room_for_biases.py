"""Channels whose weights are next to nothing, and whose biases are not."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.calibration.ranges import KnownRange
from onnxq.calibration.room_for_biases import with_room
from onnxq.graph import Model
from onnxq.quant.bias_room import ROOM
from onnxq.quant.grid_of_range import grid_numbers
from onnxq.quant.scheme import QSpec
from onnxq.workflows.quantize import quantize
from tests.models.build import parse

INT8 = QSpec(("int8",), symmetric=True, per_channel=True)
UINT8 = QSpec(("uint8",), symmetric=False, per_channel=True)


def dead_channels() -> Model:
    """Two of four channels have weights like 1e-12; a Transpose lies before the layer."""
    return parse("""g (float[1, 8, 8, 2] x) => (float[1, 2, 8, 8] y)
        <float[4, 2, 1, 1] w = {1.0, -0.5, 2e-12, 1e-12, 0.25, 2.0, 1e-16, -1e-16},
         float[4] b = {0.5, 3.0, -0.5, -2.0}, float[2, 4, 1, 1] v = {1.0, 0.5, 1.0, -2.0,
         -1.0, 1.5, 0.3, 1.0}> {
        t = Transpose<perm = [0, 3, 1, 2]>(x)
        h = Conv(t, w, b)
        r = Relu(h)
        y = Conv(r, v)
    }""")


@pytest.mark.parametrize("spec", [INT8, UINT8], ids=str)
def test_the_code_of_a_bias_fits(spec: QSpec) -> None:
    low, high = np.array([-1e-12, -1.0, 0.0]), np.array([1e-13, 0.5, 1e-20])
    bias, step = np.array([3.0, 3.0, -0.1], np.float32), 0.01
    made = with_room(KnownRange(low, high, "extremes"), spec, bias, step)
    scale, _ = grid_numbers(made.low, made.high, spec)
    assert (np.abs(bias) / (step * scale) <= ROOM * (1 + 1e-6)).all()
    assert (made.low[1], made.high[1]) == (-1.0, 0.5), "what has room already is as it was"
    assert made.source == "extremes, wide enough for its bias"


def test_ranges_with_room_stay() -> None:
    known = KnownRange.of(-1.0, 1.0, "extremes")
    assert with_room(known, INT8, np.array([5.0, -2.0], np.float32), 0.01) is known


def test_a_layer_with_dead_channels_runs_in_integers() -> None:
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.normal(size=(1, 8, 8, 2)).astype(np.float32)} for _ in range(8)]
    rules = [("*", {"bits": 8})]
    done = quantize(
        dead_channels(), find_backend("onnxruntime"), feeds, settings=rules, method="min-max"
    )
    assert done.proven, done.notes
    deployed = [proof for proof in done.proofs if proof.report.sessions[1] == "deployed"]
    assert deployed
    assert not deployed[0].report.kernels, "the outputs alone are proof"
    assert done.noise is not None
    assert done.noise.sqnr > 30
