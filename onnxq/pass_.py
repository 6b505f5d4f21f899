"""What a pass is, and the record it leaves.

A pass is a frozen dataclass: its fields are its options, in Python and in the text form
`to-qdq{opset=21}` alike. `run` does one thing to the model and reports, for everything it could
have rewritten, that it did or why it did not. It never logs, sorts, cleans up or validates: the
pipeline does.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import onnx_graphsurgeon as gs

from onnxq.errors import OptionError, near_matches
from onnxq.exporter import describe
from onnxq.graph import Model


@dataclass(frozen=True)
class Skip:
    """Something a pass declined to rewrite."""

    where: str
    reason: str


@dataclass
class Trace:
    """What one pass did to one model."""

    name: str
    rewrites: list[str] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def rewrote(self, where: gs.Node | str, detail: str = "") -> None:
        """Record a rewrite at a node or tensor."""
        place = where if isinstance(where, str) else describe(where)
        self.rewrites.append(f"{place}: {detail}" if detail else place)

    def skip(self, where: gs.Node | str, reason: str) -> None:
        """Record that something was left as it is, and why."""
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
    needs_canonical: ClassVar[bool] = False
    """Whether quantization must have been read into FakeQuantize nodes before."""
    after: ClassVar[tuple[str, ...]] = ()
    """Passes that, where both are in a pipeline, must come earlier."""

    def run(self, model: Model, trace: Trace) -> None:
        """Rewrite `model` in place and report to `trace`."""
        raise TypeError(f"{type(self).__name__} has no run()")

    @classmethod
    def summary(cls) -> str:
        """First line of the docstring."""
        return (cls.__doc__ or "").strip().splitlines()[0]

    @classmethod
    def options(cls) -> Mapping[str, Option]:
        """The options, from the dataclass fields."""
        return _options(cls)

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
                    fix=near_matches(key, known) if known else f"'{cls.name}' takes no options",
                )
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


@dataclass(frozen=True)
class Option:
    """One option of a pass."""

    name: str
    kind: Any
    required: bool
    default: Any

    @property
    def kind_name(self) -> str:
        """The type as a user reads it."""
        choices = self._choices()
        if choices:
            return "|".join(choices)
        base, optional = self._base()
        return base.__name__ + (" (optional)" if optional else "")

    def _choices(self) -> tuple[str, ...]:
        return typing.get_args(self.kind) if typing.get_origin(self.kind) is typing.Literal else ()

    def _base(self) -> tuple[type, bool]:
        if isinstance(self.kind, types.UnionType):
            kinds = [k for k in typing.get_args(self.kind) if k is not type(None)]
            return kinds[0], True
        return self.kind, False

    def parse(self, text: str, owner: str) -> Any:
        """The value written as `text`."""
        choices = self._choices()
        if choices:
            if text not in choices:
                raise OptionError(
                    f"option '{self.name}' of '{owner}' cannot be '{text}'",
                    fix=near_matches(text, choices),
                )
            return text
        base, optional = self._base()
        if optional and text == "none":
            return None
        try:
            if base is bool:
                return {"true": True, "false": False}[text.lower()]
            return base(text)
        except (KeyError, ValueError):
            want = "true or false" if base is bool else f"a value of type {base.__name__}"
            raise OptionError(
                f"option '{self.name}' of '{owner}' cannot be '{text}'",
                fix=f"write {owner}{{{self.name}=...}} with {want}",
            ) from None

    @staticmethod
    def format(value: Any) -> str:
        """The text that `parse` reads back."""
        if value is None:
            return "none"
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if not text or any(c in text for c in " ,{}='\""):
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return text


@functools.cache
def _options(cls: type[Pass]) -> Mapping[str, Option]:
    hints = typing.get_type_hints(cls)
    found = {}
    for f in dataclasses.fields(cls):
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        found[f.name] = Option(f.name, hints[f.name], required, f.default)
    return types.MappingProxyType(found)
