"""Patterns by name: those of all backends and of single ones, and those of packages."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from onnxq.discovery import Broken, clash, plug_ins
from onnxq.errors import OptionError, near_matches
from torch_bridge.insertion.pattern import Pattern
from torch_bridge.registry import table


class PatternTable:
    """Patterns by name, common ones and those of single backends.

    Args:
        group: the entry points of packages that provide more of them.
    """

    def __init__(self, group: str = "") -> None:
        self._group, self._plugged = group, False
        self._by_backend: dict[str | None, dict[str, Pattern | None]] = {None: {}}
        """Those of each backend, with None for one taken away; those of all backends under None."""
        self._provider: dict[int, str] = {}
        self.broken: list[Broken] = []
        """Packages whose patterns cannot be loaded."""

    def add(
        self,
        pattern: Pattern,
        *,
        backend: str | None = None,
        replace: bool = False,
        provider: str = "",
    ) -> None:
        """Add a pattern for its backends, or for one (then it may replace a common one)."""
        for name in (backend,) if backend else pattern.backends or (None,):
            place = self._by_backend.setdefault(name, {})
            before = place.get(pattern.name)
            if before is not None and not replace and not _is_version(before, pattern):
                raise OptionError(
                    f"a pattern '{pattern.name}' exists already: {before}",
                    fix="choose another name, or pass replace=True",
                )
            place.pop(pattern.name, None)  # the latest comes last
            place[pattern.name] = pattern
        self._provider[id(pattern)] = provider or pattern.qat.__module__

    def remove(self, name: str, *, backend: str | None = None) -> None:
        """Take a pattern away from all backends, or from one."""
        known = self._of(backend)
        if name not in known:
            raise OptionError(f"no pattern '{name}'", fix=near_matches(name, known))
        if backend is not None and name in self._by_backend[None]:
            self._by_backend.setdefault(backend, {})[name] = None
        else:
            del self._by_backend[backend][name]

    def of(self, backend: str | None = None) -> tuple[Pattern, ...]:
        """The patterns that hold for `backend`: longest chain first, then the latest added."""
        found = [pattern for pattern in self._of(backend).values() if pattern is not None]
        return tuple(sorted(reversed(found), key=lambda p: -len(p.chain)))

    def having(self, patterns: Iterable[Pattern]) -> PatternTable:
        """A table that also has these, in place of others of the same names."""
        self._plug_in()
        made = PatternTable()
        made._by_backend = {name: dict(place) for name, place in self._by_backend.items()}
        made._provider, made.broken = dict(self._provider), self.broken
        for pattern in patterns:
            made.add(pattern, replace=True)
        return made

    def named(self, name: str) -> Pattern:
        """The pattern of that name, whichever backend it is for; an error lists near matches."""
        self._plug_in()
        known = {n: p for place in self._by_backend.values() for n, p in place.items() if p}
        if name not in known:
            raise OptionError(
                f"there is no pattern '{name}'",
                fix=f"{near_matches(name, known)} (one of your own is known after "
                "torch_bridge.register_pattern(...), or in prepare(..., patterns=[...]))",
            )
        return known[name]

    def look_again(self) -> None:
        """Look for packages again, such as those installed since the program started."""
        self._plugged = False

    def not_loaded(self) -> list[str]:
        """A sentence for each package whose patterns cannot be loaded."""
        self._plug_in()
        return [
            f"the pattern '{b.name}' could not be loaded: {b.error}. Repair or uninstall the "
            f"package '{b.distribution}', which provides it"
            for b in self.broken
        ]

    def __str__(self) -> str:
        self._plug_in()
        every = {id(p): p for place in self._by_backend.values() for p in place.values() if p}
        rows = [(p.name, str(p), self._provider[at]) for at, p in every.items()]
        rows += [(b.name, f"could not be loaded: {b.error}", b.distribution) for b in self.broken]
        return table(rows)

    def _of(self, backend: str | None) -> dict[str, Pattern | None]:
        self._plug_in()
        own = {} if backend is None else self._by_backend.get(backend, {})
        return {**self._by_backend[None], **own}

    def _plug_in(self) -> None:
        """Add the patterns of packages, once."""
        if self._plugged or not self._group:
            return
        plugged, broken = plug_ins(self._group, _patterns_in, "pattern")
        known = {
            (backend, name): (pattern, self._provider[id(pattern)])
            for backend, place in self._by_backend.items()
            for name, pattern in place.items()
            if pattern is not None
        }
        for name, pattern, package in plugged:
            for backend in pattern.backends or (None,):
                before, provider = known.setdefault((backend, name), (pattern, package))
                if before is not pattern:
                    raise clash("pattern", name, provider, package)
        for _, pattern, package in plugged:
            self.add(pattern, replace=True, provider=package)
        self.broken, self._plugged = broken, True


def _is_version(before: Pattern, after: Pattern) -> bool:
    """Whether `after` is what `before` becomes when the same code runs again, as in a notebook."""

    def home(pattern: Pattern) -> tuple[str, str]:
        return pattern.qat.__module__, pattern.qat.__qualname__

    again = home(before) == home(after) and before.qat is not after.qat
    return again or before == after


def _patterns_in(thing: Any) -> dict[str, Pattern]:
    """Those in a module or a list, or the one given."""
    if isinstance(thing, ModuleType):
        found = [value for value in vars(thing).values() if isinstance(value, Pattern)]
    else:
        found = [thing] if isinstance(thing, Pattern) else list(thing)
    for each in found:
        if not isinstance(each, Pattern):
            raise TypeError(f"{each!r} is not a torch_bridge.Pattern")
    return {pattern.name: pattern for pattern in found}
