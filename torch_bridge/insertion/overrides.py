"""A user's changes to a backend's scheme for one training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from onnxq.errors import OptionError, near_matches
from onnxq.quant.layer_spec import symmetric_spec, with_powers_of_two
from onnxq.quant.scheme import QSpec
from onnxq.quant.settings import LayerSettings
from torch_bridge.fake_quant import ALGORITHMS, algorithm
from torch_bridge.insertion.selector_words import words
from torch_bridge.observers import OBSERVERS, Observer, observer

MOST_LEARNED_BITS = 8
"""Codes with more bits keep the scale that was observed, even if a backend would let it learn.

A learned step size s of range r = s * hi moves by g * dy * hi for every clipped value, with
g = 1 / sqrt(n * hi): relative to itself by dy * hi^1.5 / (r * sqrt(n)). From 8 to 16 bits that
grows 4000 times, and one clipped value throws the scale off by orders of magnitude. (Adam divides g
out again and moves it by hi / r times the learning rate.) There is also less to gain: rounding is
256 times finer than with 8 bits, so the range of the data costs nothing. (The step
that LSQ's own observer starts from is hi^0.5 times larger. It clips nothing, and has to learn.)
"""


@dataclass(frozen=True)
class Override:
    """Changes to how weights or activations are quantized; None leaves the backend's choice."""

    algorithm: str | None = None
    """A name in `torch_bridge.fake_quant.ALGORITHMS`."""
    observer: str | type[Observer] | None = None
    """A name in `torch_bridge.observers.OBSERVERS`, or a class."""
    bits: int | None = None
    symmetric: bool | None = None
    per_channel: bool | None = None
    pot_scale: bool | None = None
    """Whether scales are powers of two."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the algorithm."""
    observer_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the observer."""

    def __post_init__(self) -> None:
        if self.bits is not None and not isinstance(self.bits, int):
            raise OptionError(f"{self.bits!r} is not a number of bits", fix="choose 2 to 16")
        if self.algorithm is not None and not isinstance(self.algorithm, str):
            shown = getattr(self.algorithm, "__name__", repr(self.algorithm))
            raise OptionError(
                f"algorithm={shown} is not a name",
                fix=f"call torch_bridge.register_algorithm({shown}), and give the name that it has "
                "in its attribute 'algorithm'",
            )
        watching = self.observer
        if watching is not None and not (
            isinstance(watching, str)
            or (isinstance(watching, type) and issubclass(watching, Observer))
        ):
            raise OptionError(
                f"{watching!r} is not an observer",
                fix="give the name of one (torch_bridge.observers.OBSERVERS), or a subclass of "
                "torch_bridge.observers.Observer",
            )

    @classmethod
    def of(cls, given: Override | Mapping[str, Any] | str | None) -> Override:
        """The override that a user gave: an Override, its fields, or the name of an algorithm."""
        if given is None:
            return cls()
        if isinstance(given, Override):
            return given
        if isinstance(given, str):
            return cls(algorithm=given)
        if not isinstance(given, Mapping):
            raise OptionError(
                f"{given!r} does not say how to quantize",
                fix="give an algorithm's name, or changes such as {'bits': 4}",
            )
        known = {f.name for f in fields(cls)}
        for key in given:
            if key not in known:
                raise OptionError(
                    f"a quantizer has no option '{key}'", fix=near_matches(key, known)
                )
        return cls(**given)

    def after(self, rule: LayerSettings, *, weights: bool) -> Override:
        """The changes that are left beside those of a rule for a layer, which go first."""
        given: dict[str, Any] = {}
        if (rule.weight_bits if weights else rule.activation_bits) is not None:
            given["bits"] = None
        if weights and rule.per_channel is not None:
            given["per_channel"] = None
        if (rule.weight_symmetric if weights else rule.symmetric) is not None:
            given["symmetric"] = None
        if rule.pot_scale is not None:
            given["pot_scale"] = None
        trained_by = rule.weight_algorithm if weights else rule.activation_algorithm
        if trained_by is not None:
            given["algorithm"] = trained_by
            given["options"] = self.options if trained_by == self.algorithm else {}
        watched_by = rule.weight_observer if weights else rule.activation_observer
        if watched_by is not None:
            same = watched_by == self.observer
            given |= {
                "observer": watched_by,
                "observer_options": self.observer_options if same else {},
            }
        return replace(self, **given)

    def applied(self, spec: QSpec, what: str, backend: str) -> QSpec:
        """The rules with these changes; `what` and `backend` are for messages."""
        spec = spec.trained()
        if self.algorithm is not None:
            if self.algorithm in OBSERVERS and self.algorithm not in ALGORITHMS:
                argument = "weight" if what == "weights" else "activation"
                raise OptionError(
                    f"'{self.algorithm}' is an observer, not a quantization algorithm",
                    fix=f'give it as {argument}={{"observer": "{self.algorithm}"}}',
                )
            algorithm(self.algorithm)
            if spec.algorithm_is_grid and self.algorithm != spec.algorithm:
                raise OptionError(
                    f"{backend} computes {what} on the grid of '{spec.algorithm}', "
                    f"so '{self.algorithm}' cannot train for it",
                    fix=f"leave the algorithm out, or prepare for another backend than {backend}",
                )
        self.observer_class(spec)  # a wrong name is found here
        if self.per_channel and not spec.per_channel:
            raise OptionError(
                f"{backend} has one scale per tensor for {what}, not one per channel",
                fix="leave per_channel out, or prepare for a backend that has them",
            )
        if self.symmetric is False and spec.symmetric:
            raise OptionError(
                f"{backend} has no zero points for {what}",
                fix="leave symmetric out, or prepare for a backend that has zero points",
            )
        names = ("algorithm", "per_channel")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        spec = replace(spec, **given)
        if isinstance(self.observer, str):
            spec = replace(spec, observer=self.observer)
        if self.bits is not None:
            spec = spec.with_bits(self.bits)
        if self.symmetric and not spec.symmetric:
            spec = symmetric_spec(spec, what, backend)
        spec = with_powers_of_two(spec, self.pot_scale, what, backend)
        return self._settled(spec)

    def observer_class(self, spec: QSpec) -> type[Observer]:
        """The observer to use: the one given, or that of the rules."""
        given = spec.observer if self.observer is None else self.observer
        if not isinstance(given, str):
            return given
        if "." in given:  # a class without a name of its own
            for kind in _subclasses(Observer):
                if words(kind) == given:
                    return kind
        return observer(given)

    def _settled(self, spec: QSpec) -> QSpec:
        """Scales of wide codes do not learn, powers of two stay such, unless the user says how."""
        asked = self.algorithm is not None or self.options
        watching = self.observer_class(spec)
        if not asked and spec.power_of_two and algorithm(spec.algorithm).learns_any_scale:
            return replace(spec, algorithm="tqt" if spec.symmetric else "fixed")
        learns = spec.algorithm == "lsq" and not watching.only_a_start
        if learns and not asked and spec.bits > MOST_LEARNED_BITS:
            return replace(spec, algorithm="fixed")
        return spec


def _subclasses(kind: type[Observer]) -> Iterator[type[Observer]]:
    """All classes derived from `kind`."""
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)
