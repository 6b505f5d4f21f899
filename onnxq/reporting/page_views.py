"""How contents are shown: numbers and names as text, and the data that scripts draw."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from typing import Any

from onnxq.calibration.trials.trial import LOW_SQNR
from onnxq.proof.difference import TensorDiff
from onnxq.proof.judging import fault
from onnxq.proof.verify import Report
from onnxq.reporting.advice import count
from onnxq.reporting.commands import DATA, FLOAT
from onnxq.reporting.contents import Contents
from onnxq.reporting.layered_layout import HEIGHT, WIDTH
from onnxq.reporting.network import Layer

FAIR_SQNR = 30.0
"""From so many dB on an output is as good as the float one for most uses."""
SHOWN_ROWS = 60
"""Rows of a table that are shown at once; a button shows the rest."""


# -- text -----------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """A number of few digits."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return "0" if value == 0 else f"{value:.3g}".replace("-", "−")


def decibels(value: float | None) -> str:
    """A ratio in dB."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "exact" if value > 0 else "−∞ dB"
    return f"{value:.1f} dB".replace("-", "−")


def percent(share: float | None) -> str:
    """A share in per cent; one that is not quite all or nothing is not rounded to it."""
    if share is None:
        return "–"
    value = 100 * share
    if 0 < value < 0.01:
        return "< 0.01 %"
    if 99.9 < value < 100:
        return "> 99.9 %"
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.2g} %"


def size(count: int | None) -> str:
    """A number of bytes."""
    if count is None:
        return "–"
    for unit, bytes_ in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= bytes_:
            return f"{count / bytes_:.3g} {unit}"
    return f"{count} B"


def visible(text: Any) -> str:
    """A text in which every sign can be seen: others, such as line ends, are replaced."""
    return "".join(
        sign if sign == "\n" or unicodedata.category(sign)[0] != "C" else "\ufffd"
        for sign in str(text)
    )


# -- verdicts -------------------------------------------------------------------------------------


def grade(sqnr: float | None) -> str:
    """How good a ratio is: good, fair or poor; '' if it is not known."""
    if sqnr is None or math.isnan(sqnr):
        return ""
    return "good" if sqnr >= FAIR_SQNR else "fair" if sqnr >= LOW_SQNR else "poor"


def severities(contents: Contents) -> dict[str, int]:
    """The number of findings of each severity."""
    return count(contents.advice)


def unit(diff: TensorDiff) -> str:
    """The largest difference in words."""
    steps = "step" if diff.max == 1 else "steps"
    words = {"steps": steps, "relative": "of the largest value", "exact": "apart"}
    return f"{number(diff.max)} {words[diff.unit]}"


def next_step(report: Report) -> str:
    """What to do about the first wrong kernel of a comparison; nothing if there is none."""
    found = fault(report)
    return "" if found is None else found[1]


# -- rows -----------------------------------------------------------------------------------------


def worst_first(layers: Iterable[Layer]) -> list[tuple[int, Layer]]:
    """The layers that were compared, with their numbers, the worst first."""
    found = [(at, layer) for at, layer in enumerate(layers) if layer.sqnr is not None]
    return sorted(found, key=lambda pair: pair[1].sqnr or 0.0)


def in_float(contents: Contents) -> list[tuple[int, Layer]]:
    """The operators in float with their numbers, by reason, those with most parameters first."""
    groups: dict[str, list[tuple[int, Layer]]] = {}
    for at, layer in enumerate(contents.layers):
        if layer.fate.precision == "float":
            groups.setdefault(layer.fate.rule or "float", []).append((at, layer))
    largest = sorted(groups.values(), key=lambda group: (-_parameters(group), -len(group)))
    return [row for group in largest for row in group]


def _parameters(group: Iterable[tuple[int, Layer]]) -> int:
    return sum(layer.parameters for _, layer in group)


def is_float(contents: Contents) -> bool:
    """Whether the model itself is a float one, which is quantized before it is compared."""
    return contents.names.source == contents.names.model


def hint(contents: Contents, what: str) -> str:
    """The command that adds what a section lacks."""
    names = contents.names
    if what in ("against", "both") and is_float(contents):
        return names.quantize("--report", "report.html")
    more = {
        "against": {"against": names.against or FLOAT},
        "data": {"data": names.data or DATA},
        "both": {"against": names.against or FLOAT, "data": names.data or DATA},
        "bench": {"bench": "2"},
    }
    return names.report(**more[what])


# -- what scripts draw ----------------------------------------------------------------------------


def drawn(contents: Contents) -> dict[str, Any]:
    """The data of the page: columns rather than rows, which are half as long."""
    layers = contents.layers
    names = contents.names
    return {
        "node": [WIDTH, HEIGHT],
        "layers": {
            "name": [visible(layer.name) for layer in layers],
            "op": [visible(layer.op) for layer in layers],
            "output": [visible(layer.output) for layer in layers],
            "weight": [visible(layer.weight) for layer in layers],
            "shape": [visible(layer.shape) for layer in layers],
            "quantizer": [layer.quantizer for layer in layers],
            "precision": [layer.fate.precision for layer in layers],
            "kernel": [visible(layer.fate.kernel) for layer in layers],
            "reason": [visible(layer.fate.reason) for layer in layers],
            "parameters": [layer.parameters for layer in layers],
            "sqnr": [_plain(layer.sqnr) for layer in layers],
            "added": [None if x.added is None else float(f"{x.added:.3g}") for x in layers],
            "rescaled": [at for at, x in enumerate(layers) if x.error and x.error.rescaled],
            "x": [round(layer.place[0]) for layer in layers],
            "y": [round(layer.place[1]) for layer in layers],
            "from": [list(layer.producers) for layer in layers],
        },
        "distributions": [
            {"tensor": visible(each.tensor)} | each.to_json() for each in contents.distributions
        ],
        "commands": {
            "explain": names.explain("TENSOR"),
            "quantize": names.quantize("--settings", "rules.json"),
        },
        "limits": {"low": LOW_SQNR, "fair": FAIR_SQNR},
    }


def _plain(sqnr: float | None) -> float | str | None:
    """A ratio as JSON: 'exact' where there is no difference."""
    if sqnr is None or math.isnan(sqnr):
        return None
    if math.isinf(sqnr):
        return "exact" if sqnr > 0 else -300.0
    return round(sqnr, 2)


__all__ = [
    *("FAIR_SQNR", "SHOWN_ROWS", "decibels", "drawn", "in_float", "grade", "hint", "is_float"),
    *("next_step", "number"),
    *("percent", "severities", "size", "unit", "visible", "worst_first"),
]
