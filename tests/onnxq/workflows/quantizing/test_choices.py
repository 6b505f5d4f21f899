"""Choices are made by the noise of the samples, and kept only if they pay."""

from __future__ import annotations

import pytest

from onnxq.calibration.recipe import Recipe
from onnxq.calibration.trials.range_trial import RangeTrial
from onnxq.calibration.trials.trial import Noise
from onnxq.quant.qparam_table import QParamTable
from onnxq.workflows.quantizing.choices import METHODS_TRIED, Choices
from tests.onnxq.calibration.trials.test_range_trial import calibrated


def choices(name: str = "mobilenet") -> Choices:
    made, trial = calibrated(name, "onnxruntime")
    return Choices(made, Recipe("onnxruntime", None, "mse", made.exponents), trial)


@pytest.mark.parametrize(
    ("shares", "values", "best"),
    [
        ((1.0, 0.95, 2.0), 10000, 0),
        ((1.0, 0.8, 2.0), 10000, 1),
        ((1.0, 2.0, 3.0), 10000, 0),
        ((1.0, 0.8, 0.7), 10000, 2),
        ((1.0, 2.0, 1.02), 10000, 2),  # it cuts nothing, and differs by chance
        ((1.0, 1.0, 2.0), 16, 2),  # half the noise, seen on 16 numbers, says nothing
    ],
)
def test_other_methods_must_be_clearly_better(
    monkeypatch: pytest.MonkeyPatch, shares: tuple[float, ...], values: int, best: int
) -> None:
    left = [Noise({"y": 1.0}, {"y": share}, values) for share in shares]

    def noise(_: RangeTrial, __: QParamTable) -> Noise:
        return left.pop(0)

    monkeypatch.setattr(RangeTrial, "noise", noise)
    made = choices()
    made.choose_method()
    assert made.recipe.method == METHODS_TRIED[best]
    assert made.noise.share == shares[best]


def test_the_noise_is_that_of_the_recipe() -> None:
    made = choices()
    made.choose_method()
    known = made.noise
    again = Choices(made._calibrated, made.recipe, made._trial)
    assert again.noise.error == pytest.approx(known.error, rel=1e-4)


@pytest.mark.parametrize("quieter", [True, False])
def test_a_first_layer_stays_float_if_that_takes_away_noise(
    monkeypatch: pytest.MonkeyPatch, quieter: bool
) -> None:
    made = choices()
    before = made.noise
    (layer,) = list(made._calibrated.placing(made.recipe.settings).weights)[:1]
    name = str(layer[0].name or layer[0].outputs[0].name)
    monkeypatch.setattr(
        "onnxq.workflows.quantizing.choices.affordable_first_layers", lambda *_: (name,)
    )
    found = Noise(
        before.signal, {k: v * (0.5 if quieter else 0.95) for k, v in before.error.items()}
    )
    monkeypatch.setattr(Choices, "_measured", lambda *_: found)
    made.choose_first_layers()
    assert bool(made.recipe.settings.rules) is quieter
    assert made.first_layers == ([name] if quieter else [])
    assert made.noise is (found if quieter else before)
