"""Why files of MQBench differ from MQBench's own simulation: each cause, written out and removed.

The files lie beside the repository (`../shared/fixtures`) and are not part of it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.edit import constant, readers, replace
from onnxq.graph import Model, load
from onnxq.graph.constants import array
from onnxq.reading import canonical
from onnxq.running import sessions
from tests.checks.other_tools import outputs, relative
from tests.models.foreign_files import FOLDER
from tests.models.mqbench_arithmetic import Norm, Simulation, norms

ROUNDING = 1e-6
"""Sums in another order, relative to the largest output; a step is more than 20 times that."""

MODEL = FOLDER / "A1"

pytestmark = pytest.mark.skipif(not MODEL.exists(), reason="no ../shared/fixtures beside")


def file_of(variant: str) -> Path:
    return MODEL / f"mqbench-{variant}" / "model.onnx"


def samples() -> np.ndarray:
    return np.load(MODEL / "test.npz")["x"]


def expected(variant: str) -> np.ndarray:
    return np.load(file_of(variant).with_name("expected.npz"))["y"]


@functools.cache
def trained_norms() -> dict[str, Norm]:
    per_channel = ("classic-openvino", "classic-tensorrt", "classic-pplcuda")
    return norms(MODEL / "float_bn.onnx", *map(file_of, per_channel))


@pytest.mark.parametrize(
    "variant",
    [
        *("classic-openvino", "classic-pplcuda", "classic-vitis"),
        # Exact in onnxruntime as well: the arithmetic is not made to fit those above.
        *("classic-tensorrt", "classic-snpe", "classic-tengine-u8"),
    ],
)
def test_mqbench_arithmetic_gives_mqbench_outputs(variant: str) -> None:
    simulation = Simulation(file_of(variant), trained_norms())
    found = np.concatenate([simulation.run(x[None]) for x in samples()])
    assert relative([found], [expected(variant)]) <= ROUNDING


@pytest.mark.parametrize("variant", ["classic-openvino", "classic-vitis"])
def test_merging_the_norm_first_gives_other_outputs(variant: str) -> None:
    """All else as above: so it is the norm."""
    simulation = Simulation(file_of(variant), {})
    found = np.concatenate([simulation.run(x[None]) for x in samples()])
    assert relative([found], [expected(variant)]) > 0.005


ORDERS = 600
"""About one in 30 gives the 16-bit output of a sample: with one weight off by one code, none."""


@pytest.mark.parametrize("variant", ["classic-stpu", "classic-pplw8a16"])
def test_an_order_of_sums_gives_mqbench_outputs(variant: str) -> None:
    """One int8 code 2e-6 steps off a tie is enough; 16 bits have such codes in every layer."""
    simulation = Simulation(file_of(variant), {})
    wanted = expected(variant)
    for x, want in zip(samples(), wanted, strict=True):
        runs = (simulation.run(x[None], np.random.default_rng(seed)) for seed in range(ORDERS))
        assert any(np.abs(y - want).max() <= ROUNDING * np.abs(wanted).max() for y in runs)


def test_16_bit_outputs_differ_by_a_step_between_orders_of_sums() -> None:
    simulation = Simulation(file_of("classic-pplw8a16"), {})
    step = simulation.quantizers[simulation.file.graph.output[0].name].scale
    runs = [simulation.run(samples()[:1], np.random.default_rng(seed)) for seed in range(20)]
    moved = np.abs(np.rint((np.concatenate(runs[1:]) - runs[0]) / step))
    assert moved.max() == 1
    assert np.count_nonzero(moved.any(axis=1)) >= 5


def weights(model: Model) -> Iterator[tuple[gs.Node, np.ndarray]]:
    for node in model.nodes(FAKE_QUANTIZE):
        value = array(node.inputs[0])
        if value is not None:
            yield node, value


@pytest.mark.parametrize(
    ("variant", "most"),
    [
        ("classic-openvino", 20),
        # Codes -64..63 were trained, and the range of -128..127 is written, of the same step.
        ("classic-openvino-fakequantize", 150),
        ("head-openvino-fakequantize", 150),
    ],
)
def test_openvino_files_are_exact_with_the_trained_weights(variant: str, most: int) -> None:
    """The reach of a channel is 63.5 steps, half way between two codes: these fall elsewhere."""
    model, _ = canonical(load(file_of(variant)))
    simulation = Simulation(file_of("classic-openvino"), trained_norms())
    moved = 0
    for node, value in list(weights(model)):
        (name,) = [n for n in simulation.parameters() if node.inputs[0].name.startswith(n)]
        trained, quantizer = simulation.trained(name), simulation.parameters()[name]
        params = params_of(node)
        assert np.array_equal(params.scale, quantizer.scale)
        if params.axis == quantizer.axis:
            scale, _ = params.broadcast(value.shape)
            other = params.fake(value) != trained
            assert np.all(np.abs(np.rint(trained / scale))[other] >= 63)
            moved += np.count_nonzero(other)
        else:
            # The scales of output channels, written along the input channels.
            assert variant == "classic-openvino-fakequantize"
            assert [r.op for r in readers(node.outputs[0])] == ["ConvTranspose"]
        replace(node, constant(model, f"{name}.trained", trained), model)
    assert 0 < moved <= most
    found = outputs(sessions.reference(model), samples())
    assert relative(found, [expected(variant)]) <= ROUNDING
