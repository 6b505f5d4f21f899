"""What a user of `quantize` is told of the data, the rounding and the layers in float."""

from __future__ import annotations

from onnxq.calibration.calibrated import Calibrated
from onnxq.calibration.placing import Placed, Placing
from onnxq.calibration.recipe import Recipe
from onnxq.calibration.rounding.weight_cost import weight_cost
from onnxq.calibration.trials.trial import SAMPLES, Trial
from onnxq.observing.observe import constant_tensors
from onnxq.observing.statistics import Statistics
from onnxq.quant.qparams import Role
from onnxq.quant.settings import Settings
from onnxq.workflows.quantizing.few_values import few_values_note

FEW = SAMPLES
"""Fewer samples are no basis for ranges, and a note says so."""
SEEN = (
    "the cost is measured on samples that GPTQ has seen, and looks less than it is: give "
    f"{2 * SAMPLES} samples or more to measure it on others"
)


def of_data(
    found: Statistics, placed: Placed, calibrated: Calibrated, *, has_data: bool
) -> list[str]:
    """What the data gave, and what they are too few for."""
    notes = list(placed.notes)
    if placed.table.of(Role.ACTIVATION) and 0 < found.samples < FEW:
        some = "1 sample" if found.samples == 1 else f"{found.samples} samples"
        notes.append(
            f"the ranges come from {some}, and others may go beyond them: give a hundred or more "
            "typical ones"
        )
    else:
        notes += few_values_note(found, (row.tensor for row in placed.table.of(Role.ACTIVATION)))
    same = constant_tensors(found)
    if same:
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        notes.append(f"'{same[0]}'{more} had the same value in all samples: are the data typical?")
    if calibrated.smoothed:
        count = len(calibrated.smoothed)
        notes.append(f"smoothed channels: {count} tensor{'' if count == 1 else 's'}")
    if placed.corrected:
        count = len(placed.corrected)
        notes.append(f"{count} bias{' makes' if count == 1 else 'es make'} up for rounded weights")
    if found.samples and not has_data:
        notes.append("the cost is not measured: that needs data beside the statistics")
    return notes


def training_note(rules: Settings) -> list[str]:
    """Fields of rules that say nothing here."""
    used = [
        f"'{name}'"
        for name in ("algorithm", "observer")
        if any(
            getattr(rule.change, f"{part}_{name}") is not None
            for rule in rules.rules
            for part in ("weight", "activation")
        )
    ]
    return [f"{' and '.join(used)} of the rules had no effect: for training alone"] if used else []


def rounding_notes(
    recipe: Recipe, placing: Placing, placed: Placed, calibrated: Calibrated, trial: Trial | None
) -> list[str]:
    """What is to be known about weights of few bits."""
    count = len(placed.rounded)
    notes = [f"GPTQ rounds the weights of {count} layer{'s' * (count != 1)}"] if count else []
    if not placing.has_few_bits:
        if not count and recipe.rounding == "gptq":
            notes.append("no weight has few enough bits or inputs to be rounded by GPTQ")
        return notes
    cost = weight_cost(calibrated.model, placed.model)
    if cost is not None:
        notes.append(cost.text)
    if cost is not None and trial is None:
        notes.append(
            f"the weights are {cost.sqnr:.1f} dB from the float ones; what that costs at the "
            "outputs is not measured, and weights are rounded to their nearest codes: --data lets "
            "GPTQ round them better, and measures"
        )
    return notes


def float_note(layers: list[str], why: str) -> list[str]:
    """Layers that stay float, and why."""
    if not layers:
        return []
    more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
    return [f"'{layers[0]}'{more} in float: {why}"]


__all__ = ["FEW", "SEEN", "float_note", "of_data", "rounding_notes", "training_note"]
