"""Quantizes a float model for a backend: from data to proven files, with the cost measured.

    float model -> float form ----------------------------------------.
                      |                                               |
         data -> statistics -> recipe -> canonical model -> convert -> cost
                      (smoothing, ranges, rounding, biases, layers that stay float)

Ranges come from the data alone, never from random inputs. Every choice is in the recipe, which is
written beside the model and can be applied again. Weights of fewer than 8 bits are rounded by GPTQ
if there are samples. A target whose activations stay float needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.backend import Backend, chosen_backend
from onnxq.calibration.calibrated import Calibrated
from onnxq.calibration.float_form import float_form
from onnxq.calibration.kernel_biases import round_biases
from onnxq.calibration.placing import Placing
from onnxq.calibration.recipe import Recipe
from onnxq.calibration.rounding.weight_rounding import SAMPLES as ROUNDING_SAMPLES
from onnxq.calibration.rounding.weight_rounding import is_small_window
from onnxq.calibration.trials.before_maxima import layers_before_maxima
from onnxq.calibration.trials.cheap_layers import cheap_layers
from onnxq.calibration.trials.trial import SAMPLES, Noise, Trial
from onnxq.canonical.metadata_texts import FLOAT_LAYERS, RANGE_SOURCES, note_texts
from onnxq.edit import describe
from onnxq.errors import LoadError, OptionError
from onnxq.graph import Model, load
from onnxq.observing.range_methods import Method
from onnxq.observing.statistics import Statistics
from onnxq.parsing.argument_types import FLAG, INTEGER, NUMBER, PATH, takes
from onnxq.quant.qparams import Role
from onnxq.quant.settings import Settings
from onnxq.running.freed_memory import give_back
from onnxq.workflows.artifacts import Artifact
from onnxq.workflows.convert import Conversion, convert
from onnxq.workflows.quantizing import notes
from onnxq.workflows.quantizing.choices import METHODS_TRIED, Choices
from onnxq.workflows.quantizing.fitting_recipe import check_network
from onnxq.workflows.quantizing.float_layers import Goal, Metric, TradeOff, choose_float_layers
from onnxq.workflows.quantizing.kept_samples import KeptSamples, statistics_for
from onnxq.workflows.quantizing.verdict import judged_by_noise, latency, low_note
from onnxq.workflows.write_outputs import check_writer

if TYPE_CHECKING:
    from onnxq.running.samples import Data


@dataclass(kw_only=True, repr=False)
class Quantization(Conversion):
    """A float model quantized for a backend: files, recipe and what it costs."""

    recipe: Recipe
    samples: int
    """Samples that the ranges come from."""
    noise: Noise | None = None
    """The error of the quantized model at the outputs; None if it was not measured."""
    measured: int = 0
    """Samples that it was measured on: the first ones."""
    trade_off: list[TradeOff] = field(default_factory=list)
    """The tried numbers of float layers, and what each gives."""
    latency: float | None = None
    """Time of the quantized model as a multiple of the float one's, in onnxruntime on this machine;
    None if it was not measured."""
    float_model: Model | None = field(default=None, repr=False)
    """The float model, to compare with in a report."""

    @property
    def headline(self) -> str:
        """What it is, whether it is proven and what it costs, in one line."""
        cost = "" if self.noise is None else f", {self.noise.sqnr:.1f} dB against float"
        if cost and self.proofs and not self.proven:  # other sessions may compute something else
            cost += " in the reference session"
        speed = "" if self.latency is None else f", {self.latency:.2f} x its time"
        return super().headline + cost + speed

    @property
    def has_ranges(self) -> bool:
        """Whether activations are quantized, which takes ranges from data."""
        return bool(self.table.of(Role.ACTIVATION))

    def _trusted(self) -> Model:
        return self.source if self.float_model is None else self.float_model

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        found = None if self.noise is None else self.noise.to_json()
        return super().to_json() | {
            "samples": self.samples,
            "noise": found,
            "measured": self.measured,
            "trade_off": [each.to_json() for each in self.trade_off],
            "recipe": self.recipe.to_json(),
            "latency": self.latency,
        }


@takes(
    source=(Model, *PATH),
    backend=(str, Backend, None),
    variant=(str, None),
    data=(*PATH, Iterable, None),
    statistics=(Statistics, *PATH, None),
    recipe=(Recipe, *PATH, None),
    method=(str, None),
    keep_float=INTEGER,
    target_sqnr=(*NUMBER, None),
    metric=(Callable, None),
    max_drop=(*NUMBER, None),
    smooth=FLAG,
    bias_correction=FLAG,
    rounding=(str, None),
    samples=(*INTEGER, None),
    verify=FLAG,
    measure_latency=FLAG,
    stem=(str, None),
    progress=Callable,
)
def quantize(
    source: Model | str | Path,
    backend: str | Backend | None = None,
    data: Data = None,
    *,
    variant: str | None = None,
    settings: Any = None,
    recipe: Recipe | str | Path | None = None,
    statistics: Statistics | str | Path | None = None,
    method: str | None = None,
    smooth: bool = True,
    bias_correction: bool = True,
    rounding: str | None = None,
    keep_float: int = 0,
    target_sqnr: float | None = None,
    metric: Metric | None = None,
    max_drop: float | None = None,
    samples: int | None = None,
    verify: bool = True,
    measure_latency: bool = False,
    stem: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Quantization:
    """Quantize a float model for `backend`; nothing is written until `.save(folder)`.

    `data` are typical inputs, as for `convert`; `statistics` of them can be given as well, or
    instead (see `onnxq calibrate`). `settings` is a list of rules for layers, and `recipe` one that
    was written before: then all choices are taken from it. `rounding` of weights of fewer than
    8 bits, and of small windows, is 'gptq', which needs data, or 'nearest'; by default what is
    better.

    The worst layers stay float: `keep_float` of them, or as few as reach `target_sqnr` in dB, or
    as few as keep `metric` within `max_drop` of the float model. `metric` is called with a
    function from a feed to outputs, both dicts by name, and returns a number: more is better.
    With `measure_latency`, models for onnxruntime are timed against the float one for two seconds.
    """
    stored = Recipe.load(recipe) if isinstance(recipe, str | Path) else recipe
    if stored is not None:
        others = (variant, settings, method, rounding, keep_float, target_sqnr, max_drop)
        _check_alone(stored, backend, *others, not smooth, not bias_correction)
        backend, variant = stored.backend, stored.variant
    if backend is None:
        raise OptionError(
            "no backend is given",
            fix="give one (--backend; in Python backend); 'onnxq backends' lists them",
        )
    if samples is not None and samples < 1:
        raise OptionError(f"there are no {samples} samples", fix="give a number above 0")
    goal = Goal(keep_float, target_sqnr, metric, max_drop)
    target = chosen_backend(backend, variant)
    check_writer(target)
    if not isinstance(source, Model):
        progress(f"reading {source}")
        path = Path(source)
        stem, source = stem or path.stem, load(path)
    progress("placing quantizers")
    model, traces = float_form(source, single=target.in_single_precision)
    rules = stored.settings if stored is not None else Settings.of(settings)
    if stored is not None:
        check_network(stored, model, target)
    placing = Placing(model, target, rules)  # a wrong rule is found before the data is run
    _check_something(placing)
    asked = stored.rounding if stored is not None else rounding
    few = placing.has_few_bits and asked != "nearest"
    rounds = few or (asked != "nearest" and _has_small_windows(placing))
    kept = KeptSamples(SAMPLES + ROUNDING_SAMPLES if few else (1 + rounds) * SAMPLES)
    exponents = stored.smooth if stored is not None else None if smooth else {}
    stated = {method if stored is None else stored.method}
    stated |= {rule.change.method for rule in rules.rules if rule.change.method is not None}
    found = statistics_for(
        *(placing, data, statistics, samples, progress, kept),
        distribution=any(m is None or Method.parse(m).needs_distribution for m in stated),
        channels=exponents != {} or (bias_correction if stored is None else stored.bias_correction),
    )
    calibrated = Calibrated(placing, found, exponents, kept.for_rounding, progress)
    if rounds and asked == "gptq" and not kept.feeds:
        raise OptionError(
            "GPTQ rounds weights by what their layers compute, which needs samples",
            fix="give data as well, or let weights be rounded to 'nearest'",
        )
    tradeoff: list[TradeOff] = []
    cheap, picked, first = list[str](), list[str](), list[str]()
    chosen, noise = stored, None
    by_trial = stored is None and bool((method is None and placing.places) or few or goal.is_set)
    trial = None
    if kept.feeds and (verify or by_trial):
        progress("running the float model")
        give_back()
        trial = Trial(model, kept.feeds)
    if chosen is None:
        chosen = Recipe(
            target.name,
            variant,
            method or METHODS_TRIED[0],
            calibrated.exponents,
            bias_correction,
            rules,
            asked or ("gptq" if rounds and kept.feeds else "nearest"),
        )
        if kept.feeds:
            cheap = cheap_layers(placing, kept.feeds[0])
            picked = [n for n in layers_before_maxima(placing, kept.feeds[0]) if n not in cheap]
        chosen = chosen.with_float((*cheap, *picked))
        if trial is not None and by_trial:
            choices = Choices(calibrated, chosen, trial, progress)
            if method is None and placing.places:
                choices.choose_method()
            if asked is None and few:
                choices.choose_rounding()
            if method is None:
                choices.choose_first_layers()
            chosen, noise, first = choices.recipe, choices.noise, choices.first_layers
        if goal.is_set:
            chosen, tradeoff = choose_float_layers(calibrated, chosen, trial, goal, progress)
            noise = None
    progress("quantizing by the chosen recipe")
    placed = calibrated.placed(chosen)
    round_biases(placed.model, target)
    chosen = replace(chosen, grids=calibrated.recorded(chosen, placed))
    note_texts(placed.model, RANGE_SOURCES, placed.sources)
    in_float = calibrated.placing(chosen.settings).float_layers()
    note_texts(placed.model, FLOAT_LAYERS, in_float)
    done = convert(
        placed.model,
        target,
        data=kept.feeds[:SAMPLES] or None,
        verify=verify,
        stem=stem,
        progress=progress,
    )
    if trial is not None and (noise is None or verify):  # with its biases as they are rounded
        progress("measuring the cost")
        noise = trial.noise(placed.model)
    ratio, slow = None, list[str]()
    if measure_latency and "deployed" in target.sessions:
        progress("measuring the latency")
        ratio, slow = latency(model, done.model, kept.feeds[:SAMPLES])
    proofs, judged = done.proofs, list[str]()
    if trial is not None and noise is not None:
        proofs, judged = judged_by_noise(done, trial, noise)
        judged += low_note(noise)
    return Quantization(
        **{f.name: getattr(done, f.name) for f in fields(Conversion)}
        | {
            "traces": (*traces, *done.traces),
            "proofs": proofs,
            "notes": [
                *(r for t in traces if t.name == "single-precision" for r in t.rewrites),
                *notes.training_note(rules),
                *notes.of_data(found, placed, calibrated, has_data=bool(kept.feeds)),
                *notes.rounding_notes(chosen, placing, placed, calibrated, trial),
                *notes.float_note(cheap, "as fast there, and more accurate"),
                *notes.float_note(first, "it takes little time there, and much of the noise away"),
                *notes.float_note(
                    picked, "before a maximum, which hands on all of a value's error"
                ),
                *(
                    [notes.SEEN]
                    if trial is not None and placed.rounded and not kept.is_enough
                    else []
                ),
                *done.notes,
                *judged,
                *slow,
            ],
            "artifacts": (*done.artifacts, _recipe_file(chosen)),
            "variant": variant,
            "range_sources": placed.sources,
        },
        recipe=chosen,
        samples=found.samples,
        noise=noise,
        measured=0 if trial is None else len(trial.results),
        trade_off=tradeoff,
        latency=ratio,
        float_model=source,
    )


def _check_alone(recipe: Recipe, backend: str | Backend | None, *others: Any) -> None:
    """A recipe holds all choices: refuse others beside it."""
    name = backend.name if isinstance(backend, Backend) else backend
    if any(others) or (name is not None and name != recipe.backend):
        raise OptionError(
            f"the recipe is for {recipe.backend} and holds all choices: others cannot be given "
            "beside it",
            fix="give the recipe alone, or change it in a text editor",
        )


def _check_something(placing: Placing) -> None:
    if placing.is_empty:
        if placing.before_logs:
            raise LoadError(
                f"nothing in the model can be quantized for {placing.backend.name}: "
                f"{describe(placing.before_logs[0])} and all other layers stay float, because a "
                "logarithm shows their small values",
                fix="use the float model; a rule of --settings that names these layers quantizes "
                "them all the same",
            )
        raise LoadError(
            f"nothing in the model can be quantized for {placing.backend.name}: it contains none "
            "of the operators that the target runs in integers, or all of them stay float",
            fix="'onnxq inspect' lists the operators of the model",
        )


def _has_small_windows(placing: Placing) -> bool:
    return any(is_small_window(node, weight.shape) for node, weight in placing.weights)


def _recipe_file(recipe: Recipe) -> Artifact:
    return Artifact("_recipe.json", "the choices, to be applied again", recipe.dumps())


__all__ = ["METHODS_TRIED", "Quantization", "quantize"]
