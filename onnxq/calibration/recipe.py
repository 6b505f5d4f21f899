"""A recipe: every choice of a quantization, as JSON that is applied again to the same network.

Ranges, factors and biases follow from the choices and the data. The grids that they gave are in it
as a record: see `onnxq.calibration.recorded_grids`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from onnxq.calibration.recorded_grids import RecordedGrid
from onnxq.errors import LoadError, OnnxqError, OptionError, near_matches
from onnxq.observing.range_methods import Method
from onnxq.parsing import strict_json
from onnxq.quant.settings import Settings
from onnxq.storage.model_files import read_bytes
from onnxq.views.shown_result import ShownResult

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")

VERSION = 1
_FIX = "give a recipe written by 'onnxq quantize'"
_KEYS = (
    *("onnxq", "version", "backend", "variant", "method", "smooth", "bias_correction"),
    "rounding",
)
ROUNDINGS = ("nearest", "gptq")


@dataclass(frozen=True, repr=False)
class Recipe(ShownResult):
    """The choices of one quantization."""

    backend: str
    variant: str | None = None
    method: str = "mse"
    """How ranges of activations are chosen, if no rule says otherwise."""
    smooth: Mapping[str, float] = field(default_factory=dict)
    """The exponent of smoothing of each tensor that is smoothed; 1 where it is equalized."""
    bias_correction: bool = True
    settings: Settings = field(default_factory=Settings)
    """Rules for layers; those that stay float are among them."""
    rounding: str = "nearest"
    """How weights of few bits and of small windows are rounded: one of `ROUNDINGS`."""
    grids: tuple[RecordedGrid, ...] = ()
    """What the choices gave on the data, for those who calibrate by them in another runtime."""

    def __post_init__(self) -> None:
        Method.parse(self.method)
        if self.rounding not in ROUNDINGS:
            raise OptionError(
                f"there is no rounding '{self.rounding}'",
                fix=near_matches(self.rounding, ROUNDINGS),
            )

    def __repr__(self) -> str:
        variant = f", {self.variant}" if self.variant else ""
        rules, grids = len(self.settings.rules), len(self.grids)
        told = f"ranges by {self.method}, {rules} rules, {grids} grids"
        return f"<Recipe for {self.backend}{variant}: {told}>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views.recipe import recipe

        return recipe(self, most)

    def with_float(self, selectors: Iterable[str]) -> Recipe:
        """The same with further layers in float."""
        rules = Settings.of([[name, "float"] for name in selectors]).rules
        return replace(self, settings=Settings((*rules, *self.settings.rules)))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return self._choices() | {"grids": [each.to_json() for each in self.grids]}

    def _choices(self) -> dict[str, Any]:
        return {
            "onnxq": "recipe",
            "version": VERSION,
            "backend": self.backend,
            "variant": self.variant,
            "method": self.method,
            "smooth": dict(sorted(self.smooth.items())),
            "bias_correction": self.bias_correction,
            "rounding": self.rounding,
            "settings": self.settings.to_json(),
        }

    def dumps(self) -> str:
        """The JSON text, with one line for each grid."""
        choices = json.dumps(self._choices(), ensure_ascii=False, indent=1)
        grids = (json.dumps(each.to_json(), ensure_ascii=False) for each in self.grids)
        lines = ",".join(f"\n  {grid}" for grid in grids)
        return choices.removesuffix("\n}") + f',\n "grids": [{lines}\n ]\n}}\n'

    @classmethod
    def loads(cls, text: str) -> Recipe:
        """Read the JSON text."""
        entry = strict_json.Entry.parse(text, "a recipe", _FIX)
        entry.only((*_KEYS, "settings"), ("grids",))
        entry.choice("onnxq", "recipe")
        entry.choice("version", VERSION)
        given: dict[str, Any] = entry.value
        smooth, variant = given.get("smooth", {}), given.get("variant")
        correct, rounding = given.get("bias_correction", True), given.get("rounding", "nearest")
        numbers = isinstance(smooth, dict) and all(type(v) in (int, float) for v in smooth.values())
        if not numbers or not isinstance(correct, bool) or not isinstance(variant, str | None):
            raise LoadError(
                "the recipe's 'smooth' must map tensors to numbers, 'bias_correction' must be true "
                "or false, and 'variant' a name or null",
                fix=_FIX,
            )
        return cls(
            entry.text("backend"),
            variant,
            entry.text("method"),
            {name: float(value) for name, value in smooth.items()},
            correct,
            Settings.of(given.get("settings")),
            rounding if isinstance(rounding, str) else repr(rounding),
            _grids(given.get("grids", [])),
        )

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a file."""
        return _read(path, cls.loads)


def _grids(given: Any) -> tuple[RecordedGrid, ...]:
    if not isinstance(given, list):
        raise LoadError("the recipe's 'grids' must be a list", fix=_FIX)
    entries = (strict_json.Entry.of(v, f"grids[{i}]", _FIX) for i, v in enumerate(given))
    return tuple(map(RecordedGrid.from_json, entries))


@overload
def recipe_or_rules(given: Any) -> Recipe | Settings: ...
@overload
def recipe_or_rules(
    given: Any, others: Mapping[str, Callable[[str], T]]
) -> Recipe | Settings | T: ...
def recipe_or_rules(given: Any, others: Mapping[str, Callable[[str], Any]] | None = None) -> Any:
    """What a user gave: a recipe, settings, a list of rules, or the path of a JSON file of one.

    `others` reads further documents of a front end, by what their key 'onnxq' says.
    """
    if isinstance(given, Recipe):
        return given
    if not isinstance(given, str | Path):
        return Settings.of(given)
    return _read(given, lambda text: _loads(text, others or {}))


def _loads(text: str, others: Mapping[str, Callable[[str], Any]]) -> Any:
    fix = "give a recipe written by 'onnxq quantize', or a list of rules"
    found = strict_json.parse(text, "a recipe or a list of rules", fix)
    if not isinstance(found, dict):
        return Settings.of(found)
    return others.get(str(found.get("onnxq")), Recipe.loads)(text)


def _read(path: str | Path, loads: Callable[[str], T]) -> T:
    try:
        return loads(read_bytes(Path(path)).decode())
    except UnicodeDecodeError as error:
        raise LoadError(f"'{path}' is not a text file", fix=_FIX) from error
    except OnnxqError as error:
        raise type(error)(f"'{path}': {error.what}", fix=error.fix) from error


__all__ = ["ROUNDINGS", "Recipe", "recipe_or_rules"]
