r"""Per-layer settings: an ordered list of rules, of which the first that matches a layer decides.

    [["head", "float"],                          a path: the layer, or all below it
     ["encoder.*.attn", {"bits": 4}],            a glob
     ["re:layer[12]\\..*", {"method": "mse"}],     a regular expression for the whole name
     ["Conv", {"per_channel": false}]]           a kind of operator

A name, glob or expression means all below it too: a layer has the names of the modules around it.
The same list drives `onnxq quantize` and `torch_bridge.prepare`. A selector that matches no layer
is an error that lists similar names.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from onnxq.errors import OptionError, near_matches
from onnxq.parsing import strict_json

Layers = Mapping[Any, tuple[Iterable[str], Iterable[Any]]]
"""Layers by any key, each with its names and kinds.

A kind is the name of an operator or, in torch, also a module class or a function.
"""

_FOR_BOTH = ("bits", "algorithm", "observer")
"""Settings of weights and activations that may be stated for both at once."""
_SWITCHES = ("float", "symmetric", "weight_symmetric", "per_channel", "pot_scale")
_FIX = 'write rules like ["head", "float"] or ["re:layer1.*", {"bits": 4}]'


@dataclass(frozen=True)
class LayerSettings:
    """What a rule changes for a layer; None leaves the backend's choice."""

    float: bool = False
    """Whether the layer stays float: neither its weight nor what it reads is quantized for it."""
    weight_bits: int | None = None
    activation_bits: int | None = None
    """Bits of what the layer reads."""
    method: str | None = None
    """How ranges of activations are chosen: see `onnxq.observing.range_methods`."""
    weight_method: str | None = None
    symmetric: bool | None = None
    """Whether zero points of what the layer reads are 0."""
    weight_symmetric: bool | None = None
    """Whether those of its weight are 0."""
    per_channel: bool | None = None
    """Whether its weight has one scale per output channel."""
    pot_scale: bool | None = None
    """Whether the scales of its weight and of what it reads are powers of two."""
    weight_algorithm: str | None = None
    activation_algorithm: str | None = None
    """The algorithms of training."""
    weight_observer: Any = None
    activation_observer: Any = None
    """The observers of training, where they go before methods; in torch also classes of them."""

    def __post_init__(self) -> None:
        for field_ in fields(self):
            name, value = field_.name, getattr(self, field_.name)
            if value is None:
                continue
            if name.endswith("_bits"):
                if type(value) is not int or not 2 <= value <= 16:
                    raise OptionError(
                        f"{name} {value!r} is not a number of bits", fix="choose 2 to 16"
                    )
            elif name in _SWITCHES:
                if not isinstance(value, bool):
                    raise OptionError(f"{name} must be true or false", fix=_FIX)
            elif not isinstance(value, str | type if name.endswith("observer") else str):
                raise OptionError(f"{name} must be a name", fix=_FIX)

    @classmethod
    def of(cls, given: Any) -> LayerSettings:
        """From what a rule says: 'float', a mapping of fields, or settings."""
        if isinstance(given, LayerSettings):
            return given
        if given == "float":
            return cls(float=True)
        if not isinstance(given, Mapping):
            raise OptionError(f"{given!r} is not a setting", fix=_FIX)
        values = dict(given)
        for name in _FOR_BOTH:
            if name in values:
                value = values.pop(name)
                values = {f"weight_{name}": value, f"activation_{name}": value} | values
        known = {f.name for f in fields(cls)}
        for key in values:
            if key not in known:
                raise OptionError(
                    f"there is no setting '{key}'", fix=near_matches(str(key), {*known, *_FOR_BOTH})
                )
        return cls(**values)

    def with_default_bits(self, bits: int | None) -> LayerSettings:
        """The same, with these bits where none are stated."""
        weight = bits if self.weight_bits is None else self.weight_bits
        activation = bits if self.activation_bits is None else self.activation_bits
        return replace(self, weight_bits=weight, activation_bits=activation)

    def in_words(self, words: Callable[[Any], str]) -> LayerSettings:
        """The same, with texts for observers that only a front end understands."""
        weight, activation = self.weight_observer, self.activation_observer
        return replace(
            self,
            weight_observer=None if weight is None else words(weight),
            activation_observer=None if activation is None else words(activation),
        )

    def to_json(self) -> Any:
        """What `of` takes."""
        changed = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != f.default
        }
        return "float" if changed == {"float": True} else changed


@dataclass(frozen=True)
class Rule:
    """One rule: which layers, and what changes."""

    selector: Any
    """A text, or what a front end understands (torch: a module class or a function)."""
    change: LayerSettings

    @classmethod
    def of(cls, selector: Any, change: Any) -> Rule:
        """From the two parts of a rule, as written in Python or JSON."""
        if isinstance(selector, str) and selector.startswith("re:"):
            try:
                re.compile(selector[3:])
            except re.error as error:
                raise OptionError(
                    f"'{selector}' is not a regular expression: {error}", fix=_FIX
                ) from None
        return cls(selector, LayerSettings.of(change))

    def matches(self, names: Iterable[str], kinds: Iterable[Any]) -> bool:
        """Whether a layer of these names and kinds is meant."""
        text = self.selector
        if not isinstance(text, str):
            return any(text is kind for kind in kinds)
        if text.startswith("re:"):
            return any(re.fullmatch(text[3:], p) for name in names for p in _around(name))
        if any(sign in text for sign in "*?["):
            return any(fnmatch.fnmatchcase(p, text) for name in names for p in _around(name))
        inside = (f"{text}.", f"{text}/")
        return text in kinds or any(n == text or n.startswith(inside) for n in names)


def _around(name: str) -> Iterator[str]:
    """The name itself, and those of all that contain it: 'a.b.c', 'a.b', 'a'."""
    yield name
    for at in range(len(name) - 1, 0, -1):
        if name[at] in "./":
            yield name[:at]


def joined(asked: Iterable[LayerSettings]) -> LayerSettings:
    """What the layers that read one tensor ask for it together.

    It gets the most bits, and the zero point 0 or a power of two as its scale if one of them needs
    that. Of the rest, what the first of them states that states anything.
    """
    every = list(asked)

    def stated(name: str) -> list[Any]:
        return [value for each in every if (value := getattr(each, name)) is not None]

    def first(name: str) -> Any:
        return next(iter(stated(name)), None)

    def any_of(name: str) -> bool | None:
        return any(stated(name)) if stated(name) else None

    return LayerSettings(
        activation_bits=max(stated("activation_bits"), default=None),
        symmetric=any_of("symmetric"),
        pot_scale=any_of("pot_scale"),
        method=first("method"),
        activation_algorithm=first("activation_algorithm"),
        activation_observer=first("activation_observer"),
    )


@dataclass(frozen=True, repr=False)
class Settings:
    """All rules, in order."""

    rules: tuple[Rule, ...] = field(default=())

    def __repr__(self) -> str:
        shown = ", ".join(f"{rule.selector!r}" for rule in self.rules[:3])
        more = ", ..." if len(self.rules) > 3 else ""
        return f"<Settings: {len(self.rules)} rules{': ' if shown else ''}{shown}{more}>"

    @classmethod
    def of(cls, given: Any) -> Settings:
        """From a list of rules, as written in Python or JSON."""
        if isinstance(given, Settings):
            return given
        if given is None:
            return cls()
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise OptionError("settings are a list of rules", fix=_FIX)
        rules = []
        for rule in given:
            if isinstance(rule, str | Mapping) or not isinstance(rule, Sequence) or len(rule) != 2:
                raise OptionError(f"{rule!r} is not a rule", fix=_FIX)
            selector, change = rule
            try:
                rules.append(Rule.of(selector, change))
            except OptionError as error:
                where = f"rule {len(rules) + 1} of the settings ('{_shown(selector)}')"
                raise OptionError(f"{where}: {error.what}", fix=error.fix) from error
        return cls(tuple(rules))

    @classmethod
    def loads(cls, text: str) -> Settings:
        """Read a JSON file: the list of rules."""
        return cls.of(strict_json.parse(text, "a list of settings", _FIX))

    def in_words(self, words: Callable[[Any], str]) -> Settings:
        """The same rules, with texts for the selectors that only a front end understands."""
        return Settings(
            tuple(Rule(words(rule.selector), rule.change.in_words(words)) for rule in self.rules)
        )

    def to_json(self) -> list[Any]:
        """What `of` takes; selectors that are no texts cannot be written."""
        for rule in self.rules:
            if not isinstance(rule.selector, str):
                raise OptionError(
                    f"{rule.selector!r} cannot be written to a file",
                    fix="select layers by name, glob, 're:' or kind",
                )
        return [[rule.selector, rule.change.to_json()] for rule in self.rules]

    def dumps(self) -> str:
        """The JSON text."""
        return json.dumps(self.to_json(), ensure_ascii=False, indent=1)

    def of_layers(self, layers: Layers) -> dict[Any, LayerSettings]:
        """The settings of each layer that a rule matches; `layers` holds names and kinds."""
        return {key: self.rules[at].change for key, at in self.deciding(layers).items()}

    def deciding(self, layers: Layers) -> dict[Any, int]:
        """The number of the rule that decides about each layer that one matches."""
        chosen: dict[Any, int] = {}
        for at, rule in enumerate(self.rules):
            found = [key for key, (names, kinds) in layers.items() if rule.matches(names, kinds)]
            if not found:
                raise self._unknown(rule, layers)
            for key in found:
                chosen.setdefault(key, at)
        return chosen

    @staticmethod
    def _unknown(rule: Rule, layers: Layers) -> OptionError:
        known = {_shown(one) for names, kinds in layers.values() for one in (*names, *kinds)}
        shown = _shown(rule.selector)
        return OptionError(
            f"settings: no layer matches '{shown}'",
            fix=near_matches(shown.removeprefix("re:"), known),
        )


def _shown(selector: Any) -> str:
    return selector if isinstance(selector, str) else getattr(selector, "__name__", str(selector))


__all__ = ["LayerSettings", "Layers", "Rule", "Settings", "joined"]
