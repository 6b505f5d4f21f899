"""Every choice of one `prepare`, as JSON: with it the same model is prepared again.

The text is part of every checkpoint (see `torch_bridge.fake_quant.saved_state`). Classes and
functions are in it by their words, so replaying it needs the code of the model and nothing else. It
does not hold the arguments that are code themselves: example inputs, a tracer, and attributes to
preserve. Of patterns for one model it holds the names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, fx, nn

from onnxq.calibration.recipe import Recipe, recipe_or_rules
from onnxq.errors import OptionError
from onnxq.parsing import strict_json
from onnxq.parsing.argument_types import takes
from onnxq.quant.settings import Settings
from torch_bridge.fake_quant import FakeQuantize, saved_state
from torch_bridge.insertion.overrides import Override
from torch_bridge.insertion.selector_words import words

KIND = "training recipe"
VERSION = 1
_FIX = "give a recipe of torch_bridge.recipe(...), unchanged"


@dataclass(frozen=True, repr=False)
class TrainingRecipe:
    """The choices of one `prepare`."""

    backend: str
    settings: Settings = field(default_factory=Settings)
    """Rules for layers, with texts as selectors."""
    weight: Override = field(default_factory=Override)
    activation: Override = field(default_factory=Override)
    """Changes for all weights and activations."""
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    leaf_modules: tuple[str, ...] = ()
    freeze_bn: bool = False
    capture: str = "auto"
    quantized: Recipe | None = None
    """The recipe of `onnxq quantize` whose ranges are taken over."""
    patterns: tuple[str, ...] = ()
    """Names of patterns that were given for this model, beside those that are registered."""

    def __repr__(self) -> str:
        taken = "" if self.quantized is None else f", ranges of {self.quantized!r}"
        return f"<TrainingRecipe for {self.backend}: {len(self.settings.rules)} rules{taken}>"

    def dumps(self) -> str:
        """The JSON text, with one line for each rule."""
        document = {
            "onnxq": KIND,
            "version": VERSION,
            "backend": self.backend,
            "settings": self.settings.to_json(),
            "weight": _changes(self.weight),
            "activation": _changes(self.activation),
            **{name: list(getattr(self, name)) for name in _LISTS},
            "freeze_bn": self.freeze_bn,
            "capture": self.capture,
            "quantized": None if self.quantized is None else self.quantized.to_json(),
            **({"patterns": list(self.patterns)} if self.patterns else {}),
        }
        texts = {key: json.dumps(value, ensure_ascii=False) for key, value in document.items()}
        rules = (json.dumps(rule, ensure_ascii=False) for rule in self.settings.to_json())
        texts["settings"] = "[" + ",".join("\n  " + rule for rule in rules) + "]"
        lines = (f' "{key}": {text}' for key, text in texts.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def loads(cls, text: str) -> TrainingRecipe:
        """Read the JSON text."""
        entry = strict_json.Entry.parse(text, "a recipe of training", _FIX)
        names = (f.name for f in fields(cls) if f.name != "patterns")
        entry.only(("onnxq", "version", *names), ("patterns",))
        entry.choice("onnxq", KIND)
        entry.choice("version", VERSION)
        given: dict[str, Any] = {"patterns": [], **entry.value}
        quantized = given["quantized"]
        entry.choice("freeze_bn", True, False)
        for name in (*_LISTS, "patterns"):
            if not _is_names(given[name]):
                raise entry.error(f"'{name}' is not a list of names")
        return cls(
            entry.text("backend"),
            Settings.of(given["settings"]),
            Override.of(given["weight"]),
            Override.of(given["activation"]),
            exclude=tuple(given["exclude"]),
            include=tuple(given["include"]),
            leaf_modules=tuple(given["leaf_modules"]),
            freeze_bn=given["freeze_bn"],
            capture=entry.text("capture"),
            quantized=None if quantized is None else Recipe.loads(json.dumps(quantized)),
            patterns=tuple(given["patterns"]),
        )


_LISTS = ("exclude", "include", "leaf_modules")


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _changes(how: Override) -> dict[str, Any]:
    """What `Override.of` takes."""
    plain = Override()
    found = {}
    for each in fields(how):
        value = getattr(how, each.name)
        if value != getattr(plain, each.name):
            found[each.name] = words(value) if isinstance(value, type) else _plain(value, each.name)
    return found


def _plain(value: Any, name: str) -> Any:
    """A value as JSON has it: the scalars of numpy and torch as numbers."""

    def number(scalar: Any) -> Any:
        if callable(item := getattr(scalar, "item", None)):
            return item()
        raise OptionError(
            f"{name} contains {scalar!r}, which a checkpoint cannot keep as text",
            fix="give numbers, texts, true or false, or lists of these",
        )

    return json.loads(
        json.dumps(dict(value) if isinstance(value, Mapping) else value, default=number)
    )


@takes(source=(nn.Module, Mapping))
def recipe(source: nn.Module | Mapping[str, Any]) -> TrainingRecipe:
    """The recipe of a prepared model, or that in the checkpoint (`state_dict`) of one.

    `prepare(model, example_inputs=..., settings=recipe)` prepares another model in the same way;
    a checkpoint then loads into it.
    """
    if isinstance(source, nn.Module):
        found = (m.recipe for m in source.modules() if isinstance(m, FakeQuantize))
    else:
        found = (_recipe_in(str(key), value) for key, value in source.items())
    text = next(filter(None, found), None)
    if text is None:
        is_model = isinstance(source, nn.Module)
        raise OptionError(
            f"{type(source).__name__ if is_model else 'the checkpoint'} holds no recipe",
            fix="give a model that torch_bridge.prepare returned, or its state_dict()",
        )
    return TrainingRecipe.loads(text)


def _recipe_in(key: str, value: Any) -> str:
    """The recipe in one entry of a checkpoint; '' if there is none."""
    is_state = key.endswith(saved_state.KEY) and isinstance(value, Tensor)
    if (
        not is_state
        or value.dtype is not torch.uint8
        or key.endswith(f".observer.{saved_state.KEY}")
    ):
        return ""
    return saved_state.unpack(value).recipe


def plan(
    settings: Any, backend: str | None, patterns: tuple[str, ...] = (), **choices: Any
) -> TrainingRecipe:
    """The recipe of the arguments of `prepare`: a given one, or one with these `choices`.

    `choices` are the fields of a recipe as a user states them. Patterns are code: those that a
    recipe names are given again with it.
    """
    given = _given(settings)
    if isinstance(given, TrainingRecipe):
        stated = [name for name, value in choices.items() if value not in _UNSTATED]
        stated += ["patterns"] if set(patterns) - set(given.patterns) else []
        if stated:
            raise OptionError(
                f"the recipe already says what {' and '.join(stated)} "
                f"{'is' if len(stated) == 1 else 'are'}",
                fix="leave these arguments out, or change them in the recipe",
            )
        return given
    recipe = given if isinstance(given, Recipe) else None
    rules = given.settings if isinstance(given, Recipe) else given
    name = recipe.backend if backend is None and recipe is not None else backend
    if name is None:
        raise OptionError("no backend is given", fix="give its name; 'onnxq backends' lists them")
    return TrainingRecipe(
        name,
        rules.in_words(words),
        Override.of(choices["weight"]),
        Override.of(choices["activation"]),
        exclude=_texts(choices["exclude"], "exclude"),
        include=_texts(choices["include"], "include"),
        leaf_modules=_texts(choices["leaf_modules"], "leaf_modules"),
        freeze_bn=choices["freeze_bn"],
        capture=choices["capture"],
        quantized=recipe,
        patterns=patterns,
    )


_UNSTATED: tuple[Any, ...] = (None, (), [], False, "auto")


def _given(settings: Any) -> TrainingRecipe | Recipe | Settings:
    if isinstance(settings, TrainingRecipe):
        return settings
    return recipe_or_rules(settings, {KIND: TrainingRecipe.loads})


def _texts(selectors: Any, what: str) -> tuple[str, ...]:
    one = isinstance(selectors, str | fx.Node) or callable(selectors)
    every = (selectors,) if one else tuple(selectors)
    for selector in every:
        if not (isinstance(selector, str | fx.Node) or callable(selector)):
            raise OptionError(
                f"{what}: {selector!r} selects nothing",
                fix="give a module's path, a node's name, a glob, a module class or a function",
            )
    return tuple(map(words, every))
