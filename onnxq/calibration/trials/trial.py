r"""What quantization costs a network: the noise at its outputs, on a few samples.

    SQNR = -10 log10( \sum_o |y_o - y'_o|^2 / |y_o|^2  /  number of outputs )     in dB

with y of the float model and y' of the other, over all samples. Outputs that are not real numbers
(labels, indices) do not count there; how many of them differ is counted. An output of another
shape, as of a loop that ended sooner, is all noise.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxq.arrays.pieces import is_large
from onnxq.canonical.quantized_weights import on_grid, quantized_weights
from onnxq.edit import constant, replace
from onnxq.errors import OptionError, near_matches
from onnxq.graph import Model
from onnxq.graph.dequantized import DequantizedValues, Values, codes_of
from onnxq.quant.qparams import Array
from onnxq.running.samples import Feed, is_float
from onnxq.running.sessions import Kind, ModelSource, Session, session

SAMPLES = 8
"""Samples of a trial: differences between recipes show with few."""
LOW_SQNR = 20.0
"""Below so many dB a loss of accuracy is to be expected."""


@dataclass(repr=False)
class Noise:
    """Sums of squares of the outputs and of their errors."""

    signal: dict[str, float] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    values: int = 0
    """How many real numbers were compared."""
    labels: dict[str, int] = field(default_factory=dict)
    """How many values there are of each output that is not real."""
    changed: dict[str, int] = field(default_factory=dict)
    """How many of them differ."""
    by_sample: dict[str, list[float]] = field(default_factory=dict)
    """The error of each sample, by output."""

    def __repr__(self) -> str:
        count = len(self.signal)
        return f"<Noise: {self.sqnr:.1f} dB at {count} output{'s' * (count != 1)}>"

    def add(self, trusted: Mapping[str, Array], other: Iterable[Array]) -> None:
        """Take in the outputs of one sample."""
        for (name, y), made in zip(trusted.items(), other, strict=True):
            if not is_float(y.dtype):
                different = y.size if y.shape != made.shape else np.count_nonzero(y != made)
                self.labels[name] = self.labels.get(name, 0) + y.size
                self.changed[name] = self.changed.get(name, 0) + int(different)
                continue
            y = y.astype(np.float64)
            self.values += y.size
            power = float(np.square(y).sum())
            if y.shape == made.shape:
                error = float(np.square(y - made.astype(np.float64)).sum())
            else:
                error = power or 1.0
            self.signal[name] = self.signal.get(name, 0.0) + power
            self.error[name] = self.error.get(name, 0.0) + error
            self.by_sample.setdefault(name, []).append(error)

    @property
    def shares(self) -> dict[str, float]:
        """The share of noise in each output; one that is always 0 counts as its noise."""
        return {name: self.error[name] / (power or 1.0) for name, power in self.signal.items()}

    def decibels(self, name: str) -> float:
        """The signal-to-noise ratio of one output."""
        shares = self.shares
        if name not in shares:
            raise OptionError(f"there is no output '{name}'", fix=near_matches(name, shares))
        return decibels(shares[name])

    def changed_share(self, name: str) -> float:
        """The share of an output's labels that differ."""
        return self.changed[name] / max(self.labels[name], 1)

    @property
    def share(self) -> float:
        """The average share of noise in an output."""
        shares = self.shares.values()
        return sum(shares) / len(shares) if shares else 0.0

    @property
    def chance(self) -> float:
        """The factor by which the shares of two equally good models may differ by chance.

        A mean square of n normal errors is off by a share of sqrt(2 / n), the ratio of two by
        sqrt(4 / n) in its logarithm; twice that is rare.
        """
        return math.exp(4 / math.sqrt(max(self.values, 1)))

    @property
    def sqnr(self) -> float:
        """In dB; infinite without noise, NaN if the outputs are."""
        return decibels(self.share)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; numbers that JSON lacks are null."""
        found = {"": self.sqnr} | {name: decibels(s) for name, s in self.shares.items()}
        plain = {name: db if math.isfinite(db) else None for name, db in found.items()}
        return {"sqnr": plain.pop(""), "outputs": plain}


def decibels(share: float) -> float:
    """The signal-to-noise ratio of a share of noise."""
    return math.inf if share == 0 else -10 * math.log10(share) if share > 0 else math.nan


class Trial:
    """A few samples, and the outputs of the float model for them."""

    def __init__(self, model: ModelSource, feeds: Iterable[Feed], most: int = SAMPLES) -> None:
        made = session(model, "reference")
        self.results = [(feed, made.run(feed)) for feed in itertools.islice(feeds, most)]

    def fewer(self, most: int) -> Trial:
        """The same with the first samples only."""
        made = copy.copy(self)
        made.results = self.results[:most]
        return made

    def noise(
        self,
        model: ModelSource | Session,
        kind: Kind = "reference",
        more: Mapping[str, Array] | None = None,
    ) -> Noise:
        """Run another model on the samples; `more` are inputs that only it has."""
        if isinstance(model, Model):
            model = with_rounded_weights(model)
        made = model if isinstance(model, Session) else session(model, kind)
        found = Noise()
        for feed, outputs in self.results:
            others = made.run({**feed, **(more or {})})
            found.add(outputs, list(others.values())[: len(outputs)])
        return found


def with_rounded_weights(model: Model) -> Model:
    """A copy whose weights are rounded once, and not by a quantizer in every run.

    Of a large weight the codes are kept, a quarter of its size: sessions read the values once.
    """
    made = model.clone()
    for node, params, weight in list(quantized_weights(made)):
        name = f"{node.outputs[0].name}.rounded"
        rounded: Values
        if is_large(weight.shape):
            codes = codes_of(weight, params, params.qtype.dtype)
            rounded = DequantizedValues(codes, params, weight.dtype)
        else:
            rounded = on_grid(params, weight)
        replace(node, constant(made, name, rounded), made)
    return made


__all__ = ["LOW_SQNR", "SAMPLES", "Noise", "Trial", "decibels", "with_rounded_weights"]
