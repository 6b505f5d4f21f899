"""What the samples of a trial decide: ranges, the rounding of weights, float first layers.

Each choice compares the noise at the outputs, one after the other. On the very data that they come
from, tight ranges look better than they are. So the extremes are taken unless others are better by
more than chance, and ranges by the least squared error unless others are clearly better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onnxq.calibration.calibrated import Calibrated
from onnxq.calibration.recipe import Recipe
from onnxq.calibration.trials.cheap_layers import WORTH, affordable_first_layers
from onnxq.calibration.trials.range_trial import RangeTrial
from onnxq.calibration.trials.trial import Noise, Trial

METHODS_TRIED = ("mse", "percentile:99.999", "min-max")
"""Ways to choose ranges that are compared if the user states none; the last one cuts nothing."""
CLEARLY = 0.9
"""Share of the noise of the first method that another must stay below."""


class Choices:
    """A recipe that gets better with every choice, and its noise."""

    def __init__(
        self,
        calibrated: Calibrated,
        recipe: Recipe,
        trial: Trial,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._calibrated, self._trial, self._progress = calibrated, trial, progress
        self.recipe = recipe
        self.first_layers: list[str] = []
        """The first layers that stay float."""
        self._noise: Noise | None = None

    @property
    def noise(self) -> Noise:
        """The noise of the recipe as it is."""
        if self._noise is None:
            self._noise = self._measured(self.recipe)
        return self._noise

    def choose_method(self) -> None:
        """Compare ways to choose ranges."""
        self._progress("comparing ways to choose ranges")
        tried = [replace(self.recipe, method=name) for name in METHODS_TRIED]
        ranges = RangeTrial(self._calibrated.placed(tried[0]).model, self._trial)
        noises = [ranges.noise(self._calibrated.activation_grids(each)) for each in tried]
        found = [n or self._measured(each) for n, each in zip(noises, tried, strict=True)]
        best = min(range(len(tried)), key=lambda at: found[at].share)
        if found[-1].share <= found[best].share * found[best].chance:
            best = len(tried) - 1
        elif CLEARLY * found[0].share <= found[best].share:
            best = 0
        self.recipe, self._noise = tried[best], found[best]

    def choose_rounding(self) -> None:
        """Compare GPTQ with rounding to nearest."""
        self._progress("comparing ways to round weights")
        self._take_if_better(replace(self.recipe, rounding="nearest"))

    def choose_first_layers(self) -> None:
        """Compare float first layers with quantized ones, if they are cheap."""
        placing = self._calibrated.placing(self.recipe.settings)
        layers = affordable_first_layers(placing, self._trial.results[0][0])
        if layers:
            self._progress("trying the first layer in float")
            if self._take_if_better(self.recipe.with_float(layers), WORTH):
                self.first_layers = list(layers)

    def _take_if_better(self, recipe: Recipe, share: float = 1.0) -> bool:
        before, found = self.noise, self._measured(recipe)
        better = found.share < share * before.share
        if better:
            self.recipe, self._noise = recipe, found
        return better

    def _measured(self, recipe: Recipe) -> Noise:
        return self._trial.noise(self._calibrated.placed(recipe).model)


__all__ = ["METHODS_TRIED", "Choices"]
