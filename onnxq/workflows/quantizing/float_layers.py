"""Which layers stay float so that a network keeps its quality: as few as possible.

Layers are ranked once by the noise they add. The fewest of the worst that reach the goal are then
found by halving: one trial for each doubling of their number. The noises of layers do not quite add
up, so those of them that turn out not to be needed are quantized again, and of a given number of
layers fewer stay float if that is better.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxq.calibration.calibrated import Calibrated
from onnxq.calibration.recipe import Recipe
from onnxq.calibration.trials.sensitivity import FloatStep, rank
from onnxq.calibration.trials.trial import Trial
from onnxq.errors import OnnxqError, OptionError
from onnxq.graph import Model
from onnxq.quant.qparams import Array
from onnxq.running.sessions import reference

Predict = Callable[[Mapping[str, Array]], dict[str, Array]]
"""A model as a function from inputs to outputs, by name."""
RANKING = 4
"""Samples for the ranking, which runs the network once for every quantizer."""

TRIALS = 12
"""Most numbers of float layers that are tried for one goal in layers."""

Metric = Callable[[Predict], float]
"""A quality that the user measures: more is better."""


@dataclass(frozen=True)
class Goal:
    """When enough layers are float."""

    count: int = 0
    sqnr: float | None = None
    metric: Metric | None = None
    max_drop: float | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise OptionError(
                f"the number of layers to keep in float is negative ({self.count})",
                fix="give 0 or more",
            )
        for what, value in (("target SQNR", self.sqnr), ("largest drop", self.max_drop)):
            if value is not None and math.isnan(value):
                raise OptionError(
                    f"the {what} is not a number (NaN)", fix="give a number, like 0.5 or 30"
                )
        if self.sqnr is not None and self.sqnr <= 0:
            raise OptionError(
                f"a target SQNR of {self.sqnr:g} dB is no goal: at 0 dB the error is as large as "
                "the outputs",
                fix="give a number above 0, like 30",
            )
        if (self.metric is None) != (self.max_drop is None):
            raise OptionError(
                "a metric and the largest drop of it belong together",
                fix="give both (--metric and --max-drop; in Python metric and max_drop)",
            )
        given = [bool(self.count), self.sqnr is not None, self.metric is not None]
        if sum(given) > 1:
            raise OptionError(
                "a number of float layers, a target SQNR and a metric are different goals",
                fix="give one of them",
            )

    @property
    def is_set(self) -> bool:
        """Whether there is a goal at all."""
        return bool(self.count) or self.sqnr is not None or self.metric is not None


@dataclass(frozen=True)
class TradeOff:
    """A number of float layers, and what it gives."""

    layers: tuple[str, ...]
    sqnr: float
    metric: float | None
    reached: bool

    @property
    def text(self) -> str:
        """In words."""
        if self.metric is not None:
            return f"the metric is {self.metric:g}"
        return f"the SQNR is {self.sqnr:.1f} dB"

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        sqnr = self.sqnr if math.isfinite(self.sqnr) else None
        return {
            "float_layers": list(self.layers),
            "sqnr": sqnr,
            "metric": self.metric,
            "reached": self.reached,
        }


def choose_float_layers(
    calibrated: Calibrated,
    recipe: Recipe,
    trial: Trial | None,
    goal: Goal,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Recipe, list[TradeOff]]:
    """The recipe with the fewest float layers that reach the goal, and what was tried."""
    if not goal.is_set:
        return recipe, []
    if trial is None:
        raise OptionError(
            "finding the layers that cost most needs samples",
            fix="give typical inputs as well (--data; in Python data)",
        )
    search = _Search(calibrated, recipe, trial, goal)
    first = search.tried(())
    if first.reached:
        return recipe, search.found
    # A corrected bias belongs to its rounded weight: without the one the other adds noise. And
    # without its quantizer a weight that GPTQ rounded would still be rounded.
    plain = replace(recipe, bias_correction=False, rounding="nearest")
    placed = calibrated.placed(plain)
    placing = calibrated.placing(recipe.settings)
    fewer = trial.fewer(RANKING)
    steps = rank(placing, placed, fewer, progress, with_neighbours=not goal.count)
    if goal.count:
        for layers in _prefixes(steps, goal.count):
            search.tried(layers)
        best = max(search.found, key=lambda each: (each.sqnr, -len(each.layers)))
        return _checked(calibrated, recipe, best, goal), search.found
    progress("finding the fewest float layers")
    low, high = 0, 1  # `low` steps are too few
    while high < len(steps) and not search.tried(_of(steps[:high])).reached:
        low, high = high, min(2 * high, len(steps))
    if high == len(steps) and not search.tried(_of(steps)).reached:
        raise OptionError(
            f"the goal cannot be reached: with all layers in float {search.found[-1].text}",
            fix="choose a lower goal, or see whether the data are typical",
        )
    while high - low > 1:
        middle = (low + high) // 2
        if search.tried(_of(steps[:middle])).reached:
            high = middle
        else:
            low = middle
    kept = steps[:high]
    for step in reversed(kept[:-1]):  # the last one is needed: without it there were too few
        without = [each for each in kept if each is not step]
        if search.tried(_of(without)).reached:
            kept = without
    found = sorted(search.found, key=lambda each: len(each.layers))
    best = next(each for each in found if each.layers == _of(kept))
    return _checked(calibrated, recipe, best, goal), found


def _checked(calibrated: Calibrated, recipe: Recipe, best: TradeOff, goal: Goal) -> Recipe:
    """The recipe with these layers in float, which must leave something to quantize."""
    chosen = recipe.with_float(best.layers)
    if not calibrated.placing(chosen.settings).is_empty:
        return chosen
    if goal.count:
        most = len(best.layers) - 1
        raise OptionError(
            f"with {goal.count} more in float all layers would stay float: nothing is left to "
            "quantize",
            fix=f"keep {most} or fewer in float, or use the float model",
        )
    raise OptionError(
        f"all layers would stay float to reach the goal (then {best.text}): nothing is left to "
        "quantize",
        fix="choose a lower goal, see whether the data are typical, or use the float model",
    )


def _of(steps: list[FloatStep]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for step in steps for name in step.layers))


def _prefixes(steps: list[FloatStep], most: int) -> list[tuple[str, ...]]:
    """The layers of the first steps, of more and more of them: at most so many layers."""
    chosen: list[tuple[str, ...]] = []
    layers: tuple[str, ...] = ()
    for step in steps:
        more = (*layers, *(name for name in step.layers if name not in layers))
        if len(more) <= most:
            layers = more
            chosen.append(layers)
    every = -(-len(chosen) // TRIALS) or 1
    return chosen[::-1][::every][::-1]  # the longest is always among them


_METRIC = (
    "let it return one number, of which more is better; it gets a function from a dict of inputs "
    "to a dict of outputs"
)


def _place(error: BaseException) -> str:
    """Where in the user's own file an error comes from, in words."""
    here = Path(__file__)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) != here]
    if not frames:
        return ""
    own = [f for f in frames if Path(f.filename) == Path(frames[0].filename)][-1]
    return f" at {own.filename}, line {own.lineno}"


class _Search:
    def __init__(self, calibrated: Calibrated, recipe: Recipe, trial: Trial, goal: Goal) -> None:
        self._calibrated, self._recipe, self._trial, self._goal = calibrated, recipe, trial, goal
        self._least = -math.inf
        if goal.metric is not None and goal.max_drop is not None:
            self._least = self._measure(calibrated.model) - goal.max_drop
        self.found: list[TradeOff] = []

    def _measure(self, model: Model) -> float:
        assert self._goal.metric is not None
        made = reference(model)
        try:
            value = float(self._goal.metric(made.run))
        except OnnxqError:
            raise  # of the run
        except (Exception, SystemExit) as error:
            names = ", ".join(f"'{each.name}'" for each in made.outputs)
            raise OptionError(
                f"the metric failed{_place(error)}: {type(error).__name__}: {error}",
                fix=f"{_METRIC}. Outputs of this model: {names}"
                if isinstance(error, KeyError)
                else _METRIC,
            ) from error
        if math.isnan(value):
            raise OptionError("the metric is not a number (NaN)", fix=_METRIC)
        return value

    def tried(self, layers: tuple[str, ...]) -> TradeOff:
        """Quantize with these layers in float, and look what it gives."""
        made = self._calibrated.placed(self._recipe.with_float(layers))
        sqnr = self._trial.noise(made.model).sqnr
        value = None if self._goal.metric is None else self._measure(made.model)
        if value is not None:
            reached = value >= self._least
        else:
            reached = self._goal.sqnr is not None and sqnr >= self._goal.sqnr
        self.found.append(TradeOff(layers, sqnr, value, reached))
        return self.found[-1]


__all__ = ["Goal", "Metric", "TradeOff", "choose_float_layers"]
