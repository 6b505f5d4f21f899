"""Ranges and recipes on a calibrated model."""

from __future__ import annotations

import numpy as np

from onnxq.backend import chosen_backend
from onnxq.calibration.calibrated import Calibrated
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.recipe import Recipe
from onnxq.calibration.wanted import wanted
from onnxq.graph import from_proto
from onnxq.observing.observe import observe
from onnxq.observing.range_methods import Method
from onnxq.quant.settings import Settings
from onnxq.running.sessions import reference
from tests.models.networks import NETWORKS, samples


def ground(name: str, backend: str = "onnxruntime") -> Calibrated:
    target = chosen_backend(backend, None)
    model, _ = float_form(from_proto(NETWORKS[name]()))
    found = observe(model, wanted(Placing(model, target)), samples(name, 8))
    return Calibrated(Placing(model, target), found, {})


def test_min_max_is_what_the_network_computes() -> None:
    made = ground("resnet")
    placing = made.placing(Settings())
    table = made.ranges(placing, Method("min-max"))
    names = [name for name in table if name != "x"]
    session = reference(made.model, taps=names)
    seen = [session.run(feed) for feed in samples("resnet", 8)]
    for name in names:
        low = min(0.0, *(float(values[name].min()) for values in seen))
        high = max(0.0, *(float(values[name].max()) for values in seen))
        np.testing.assert_allclose([table[name].low, table[name].high], [low, high], rtol=1e-5)
        assert table[name].source == "min-max over 8 samples"


def test_a_rule_states_the_method_of_what_a_layer_reads() -> None:
    made = ground("conv1d")
    layer = made.placing(Settings()).weights[1][0]
    settings = Settings.of([[layer.name, {"method": "percentile:90"}]])
    table = made.ranges(made.placing(settings), Method("min-max"))
    stated = [n for n, each in table.items() if each.source.startswith("percentile:90")]
    assert stated
    plain = made.ranges(made.placing(Settings()), Method("min-max"))
    assert float(table[stated[0]].high) < float(plain[stated[0]].high)


def test_recipes_do_not_change_the_ground() -> None:
    made = ground("conv1d")
    before = made.model.to_proto().SerializeToString()
    first = made.placed(Recipe("onnxruntime")).model.to_proto().SerializeToString()
    again = made.placed(Recipe("onnxruntime")).model.to_proto().SerializeToString()
    assert first == again
    assert made.model.to_proto().SerializeToString() == before
