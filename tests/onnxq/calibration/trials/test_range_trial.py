"""One session with grids from outside measures what a model of each grid measures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.calibration.calibrated import Calibrated
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.recipe import Recipe
from onnxq.calibration.trials.range_trial import RangeTrial
from onnxq.calibration.trials.trial import Trial
from onnxq.calibration.wanted import wanted
from onnxq.graph import from_proto
from onnxq.observing.observe import observe
from onnxq.quant.qparam_table import QParamTable
from onnxq.workflows.quantize import METHODS_TRIED
from tests.models.networks import NETWORKS, samples


def calibrated(name: str, backend: str) -> tuple[Calibrated, Trial]:
    target = find_backend(backend)
    model, _ = float_form(from_proto(NETWORKS[name]()), single=True)
    feeds = list(samples(name))
    found = observe(model, wanted(Placing(model, target)), feeds)
    return Calibrated(Placing(model, target), found), Trial(model, feeds)


@pytest.mark.parametrize("name", ["resnet", "mobilenet", "transformer"])
@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_the_noise_is_that_of_a_model_of_its_own(name: str, backend: str) -> None:
    made, trial = calibrated(name, backend)
    recipe = Recipe(backend, None, "mse", made.exponents)
    ranges = RangeTrial(made.placed(recipe).model, trial)
    for method in METHODS_TRIED:
        tried = replace(recipe, method=method)
        found = ranges.noise(made.activation_grids(tried))
        assert found is not None
        wanted_noise = trial.noise(made.placed(tried).model)
        assert found.error == pytest.approx(wanted_noise.error, rel=1e-4), method
        assert found.signal == wanted_noise.signal


def test_quantizers_of_other_tensors_or_types_need_a_model_of_their_own() -> None:
    made, trial = calibrated("resnet", "onnxruntime")
    recipe = Recipe("onnxruntime")
    ranges = RangeTrial(made.placed(recipe).model, trial)
    grids = list(made.activation_grids(recipe))
    assert ranges.noise(QParamTable(grids[1:])) is None
    narrow = replace(grids[0], hi=grids[0].hi - 1)
    assert ranges.noise(QParamTable([narrow, *grids[1:]])) is None
    wide = replace(grids[0], scale=np.asarray(grids[0].scale * 2, np.float32))
    assert ranges.noise(QParamTable([wide, *grids[1:]])) is not None


def test_logarithmic_grids_need_a_model_of_their_own() -> None:
    made, trial = calibrated("resnet", "nnie")
    recipe = Recipe("nnie")
    ranges = RangeTrial(made.placed(recipe).model, trial)
    assert ranges.noise(made.activation_grids(recipe)) is None
