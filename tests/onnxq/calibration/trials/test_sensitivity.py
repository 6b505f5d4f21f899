"""The ranking of layers against quantizing them one by one."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
import pytest

from onnxq.backend import chosen_backend
from onnxq.calibration.calibrated import Calibrated
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.recipe import Recipe
from onnxq.calibration.trials.layer_cost import FloatTime
from onnxq.calibration.trials.sensitivity import _greedy, quantizer_noises, rank
from onnxq.calibration.trials.trial import Trial
from onnxq.calibration.wanted import wanted
from onnxq.graph import from_proto
from onnxq.observing.observe import observe
from onnxq.quant.settings import Settings
from tests.models.networks import NETWORKS, samples


def calibrated(name: str, target: str = "onnxruntime") -> tuple[Calibrated, Trial]:
    backend = chosen_backend(target, None)
    model, _ = float_form(from_proto(NETWORKS[name]()))
    data = samples(name, 8)
    found = observe(model, wanted(Placing(model, backend)), data)
    return Calibrated(Placing(model, backend), found, {}), Trial(model, data)


def test_a_coarse_layer_comes_first() -> None:
    """One layer with 2-bit weights makes nearly all the noise."""
    ground, trial = calibrated("resnet")
    layers = [node.name for node, _ in ground.placing(Settings()).weights]
    for bad in (layers[1], layers[-1]):
        settings = Settings.of([[bad, {"weight_bits": 2}]])
        recipe = Recipe("onnxruntime", bias_correction=False, settings=settings)
        placing, placed = ground.placing(recipe.settings), ground.placed(recipe)
        first = rank(placing, placed, trial)[0]
        assert bad in first.layers
        assert first.share > 0.9


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", "tensorrt", "vitis", "qnn"])
def test_with_all_layers_in_float_nothing_is_quantized(backend: str) -> None:
    """Also what lies between layers: pools, sums, activation functions."""
    ground, trial = calibrated("resnet", backend)
    recipe = Recipe(backend, bias_correction=False)
    steps = rank(ground.placing(recipe.settings), ground.placed(recipe), trial)
    everything = [name for step in steps for name in step.layers]
    placed = ground.placed(recipe.with_float(everything))
    fixed = {"x"} if chosen_backend(backend, None).placement.graph_inputs else set()
    assert set(placed.sources) == fixed
    assert fixed or trial.noise(placed.model).sqnr > 120


def test_switched_off_means_not_there() -> None:
    """The noise of a weight is what remains of the network's without its quantizer."""
    ground, trial = calibrated("conv1d")
    recipe = Recipe("onnxruntime", bias_correction=False)
    placed = ground.placed(recipe)
    noises = quantizer_noises(placed.model, trial)
    assert set(noises) == set(placed.sources)
    whole = trial.noise(placed.model).share
    node, weight = ground.placing(Settings()).weights[0]
    without = placed.model.clone()
    quantizer = next(n for n in without.nodes() if n.inputs and n.inputs[0].name == weight.name)
    from onnxq.edit import replace

    replace(quantizer, quantizer.inputs[0], without)
    left = trial.noise(without).share
    # Weights that a trial rounds in advance may be multiplied in another order.
    np.testing.assert_allclose(noises[weight.name], (whole - left) / whole, atol=1e-5)
    assert node.op == "Conv"


def test_neighbours_go_together_if_that_pays() -> None:
    """A quantizer between two layers goes only with both."""
    own = {1: 0.1, 2: 0.1, 3: 0.25}
    needs = [(frozenset({1, 2}), 0.6), (frozenset({3}), 0.05)]
    names = {1: "a", 2: "b", 3: "c"}
    steps = _greedy(own, needs, names, FakeTime())
    assert [step.layers for step in steps] == [("a", "b"), ("c",)]
    np.testing.assert_allclose([step.share for step in steps], [0.8, 0.3])


class FakeTime(FloatTime):
    """Layers of equal times, and one that saves time beside another."""

    def __init__(self, saves: dict[int, int] | None = None, dear: int = 0) -> None:
        self.products = {1: 1.0, 2: 1.0, 3: 1.0}
        self._saves, self._dear = saves or {}, dear

    def more(self, floats: Set[int], new: Set[int]) -> float:
        saved = sum(4.0 for op in new if self._saves.get(op) in floats | new)
        return len(new) + (100.0 if self._dear in new else 0.0) - saved

    def beside(self, new: Set[int]) -> set[int]:
        return {op for op, other in self._saves.items() if other in new} - set(new)


def test_layers_that_cost_time_come_later() -> None:
    own, names = {1: 0.5, 2: 0.3, 3: 0.2}, {1: "a", 2: "b", 3: "c"}
    steps = _greedy(own, [], names, FakeTime(dear=1))
    assert [step.layers for step in steps] == [("b",), ("c",), ("a",)]


def test_a_neighbour_that_saves_time_comes_along() -> None:
    own, names = {1: 0.5, 2: 0.3, 3: 0.1}, {1: "a", 2: "b", 3: "c"}
    steps = _greedy(own, [], names, FakeTime({3: 1}))
    assert [step.layers for step in steps] == [("a", "c"), ("b",)]
    np.testing.assert_allclose([step.share for step in steps], [0.6, 0.3])
