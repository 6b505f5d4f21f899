"""Defines a pass, and the record it leaves.

A pass is a frozen dataclass: its fields are its options, in Python and in the text form
`to-qdq{opset=21}` alike. `run` does one thing to the model and reports, for everything it could
have rewritten, that it did or why it did not. It never logs, sorts, cleans up or validates: the
pipeline does.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import onnx_graphsurgeon as gs

from onnxq.errors import OptionError, PassError, near_matches
from onnxq.graph import Model
from onnxq.storage.exporter import describe


@dataclass(frozen=True)
class Skip:
    """Something a pass declined to rewrite."""

    where: str
    reason: str


@dataclass
class Trace:
    """The work of one pass on one model."""

    name: str
    rewrites: list[str] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"<Trace of {self.name}: rewrote {len(self.rewrites)}, left {len(self.skips)}>"

    def rewrote(self, where: gs.Node | str, detail: str = "") -> None:
        """Record a rewrite at a node or tensor."""
        place = where if isinstance(where, str) else describe(where)
        self.rewrites.append(f"{place}: {detail}" if detail else place)

    def skip(self, where: gs.Node | str, reason: str) -> None:
        """Record that something was left unchanged, and why."""
        self.skips.append(Skip(where if isinstance(where, str) else describe(where), reason))

    def note(self, text: str) -> None:
        """Record something the user should know."""
        self.notes.append(text)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "pass": self.name,
            "rewrites": self.rewrites,
            "skips": [dataclasses.asdict(s) for s in self.skips],
            "notes": self.notes,
            "seconds": round(self.seconds, 6),
        }


@dataclass(frozen=True)
class Pass:
    """Base of all passes."""

    name: ClassVar[str] = ""
    exact: ClassVar[bool] = False
    """Whether the model computes the same as before, up to float rounding."""
    lossy: ClassVar[bool] = False
    """Whether it changes results because the target requires it. A conversion then proves the
    models before and after it, and measures the cost."""
    needs_canonical: ClassVar[bool] = False
    """Whether quantization must have been read into FakeQuantize nodes before."""
    dialect: ClassVar[str] = ""
    """The dialect it reads, for a pass that brings a model to the canonical form."""
    after: ClassVar[tuple[str, ...]] = ()
    """Passes that must come earlier if both are in a pipeline."""

    def run(self, model: Model, trace: Trace) -> None:
        """Rewrite `model` in place and report to `trace`."""
        raise PassError(
            f"{type(self).__name__} has no run()", fix="define run(self, model, trace) in it"
        )

    @classmethod
    def summary(cls) -> str:
        """First line of the docstring."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    @classmethod
    @functools.cache
    def options(cls) -> Mapping[str, Option]:
        """The options, from the dataclass fields."""
        hints = typing.get_type_hints(cls)
        return {f.name: Option.of(f, hints[f.name]) for f in dataclasses.fields(cls)}

    @classmethod
    def from_options(cls, given: Mapping[str, str]) -> Pass:
        """Build the pass from option texts, checking names and types."""
        known = cls.options()
        values: dict[str, Any] = {}
        for key, text in given.items():
            name = key.replace("-", "_")
            if name not in known:
                raise OptionError(
                    f"pass '{cls.name}' has no option '{key}'",
                    fix=near_matches(name, known) if known else f"'{cls.name}' takes no options",
                )
            if name in values:
                raise OptionError(f"duplicate option '{name}' of '{cls.name}'", fix="give it once")
            values[name] = known[name].parse(text, cls.name)
        missing = [o.name for o in known.values() if o.required and o.name not in values]
        if missing:
            raise OptionError(
                f"pass '{cls.name}' needs option '{missing[0]}'",
                fix=f"write {cls.name}{{{missing[0]}=...}}",
            )
        return cls(**values)

    def __str__(self) -> str:
        """The text form; options at their default are left out."""
        parts = []
        for option in self.options().values():
            value = getattr(self, option.name)
            if option.required or value != option.default:
                parts.append(f"{option.name}={option.format(value)}")
        return self.name + (f"{{{' '.join(parts)}}}" if parts else "")


class Quoted(str):
    """A quoted option text: `'none'` is a word, `none` is no value."""

    __slots__ = ()


@dataclass(frozen=True)
class Option:
    """One option of a pass: bool, int, float, str or one of some choices, each perhaps None."""

    name: str
    kind: Any
    """The type, without None."""
    optional: bool
    required: bool
    default: Any

    @classmethod
    def of(cls, declared: dataclasses.Field[Any], hint: Any) -> Option:
        """The option for a dataclass field."""
        kinds = [hint]
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            kinds = [k for k in typing.get_args(hint) if k is not type(None)]
        kind = kinds[0]
        if len(kinds) > 1 or not (kind in _PLAIN or typing.get_origin(kind) is Literal):
            raise TypeError(f"option '{declared.name}' has type {hint}, which has no text form")
        default = declared.default
        if declared.default_factory is not dataclasses.MISSING:
            default = declared.default_factory()
        required = default is dataclasses.MISSING
        optional = type(None) in typing.get_args(hint)
        return cls(declared.name, kind, optional, required, None if required else default)

    @property
    def kind_name(self) -> str:
        """The type in words."""
        name = "|".join(self._choices) or self.kind.__name__
        return name + (" (optional)" if self.optional else "")

    @property
    def _choices(self) -> dict[str, Any]:
        """Choices by their text; empty if any value of the type is allowed."""
        if typing.get_origin(self.kind) is not Literal:
            return {}
        return {str(choice): choice for choice in typing.get_args(self.kind)}

    def parse(self, text: str, owner: str) -> Any:
        """The value written as `text`."""
        if self.optional and text == "none" and not isinstance(text, Quoted):
            return None
        choices = self._choices
        if choices:
            self.check(choices.get(text, text), owner)
            return choices[text]
        try:
            if self.kind is bool:
                return {"true": True, "false": False}[text.lower()]
            value = self.kind(text)
            if value != value:  # nothing compares to NaN, so no pass could use it
                raise ValueError
            return value
        except (KeyError, ValueError):
            want = "true or false" if self.kind is bool else f"a value of type {self.kind.__name__}"
            raise OptionError(
                f"option '{self.name}' of '{owner}' cannot be '{text}'",
                fix=f"write {owner}{{{self.name}=...}} with {want}",
            ) from None

    def check(self, value: Any, owner: str) -> None:
        """Refuse a value that is none of the choices, as `Literal` lists them."""
        choices = self._choices
        if choices and value not in choices.values() and not (self.optional and value is None):
            raise OptionError(
                f"option '{self.name}' of '{owner}' cannot be '{value}'",
                fix=near_matches(str(value), choices),
            )

    @staticmethod
    def format(value: Any) -> str:
        """The text that `parse` reads back."""
        if value is None:
            return "none"
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if text == "none" or not _BARE.fullmatch(text):
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return text


_PLAIN = (bool, int, float, str)
_BARE = re.compile(r"""[^\s,{}='"]+""")


__all__ = ["Option", "Pass", "Quoted", "Skip", "Trace"]
