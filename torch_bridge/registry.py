"""Classes by name: those of torch_bridge, those that a program registers, those of packages.

A name means one class everywhere: in arguments, rules, recipes and checkpoints. Two providers of
one name are an error that names both. A package that cannot be imported is shown in the listing,
and is an error only for those who ask for its name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar

from onnxq.discovery import Broken, Provided, all_by_name, loaded, plug_ins
from onnxq.errors import OptionError, near_matches
from onnxq.near_words import closest

T = TypeVar("T")
BUILT_IN = "torch_bridge"


class Registry(Mapping[str, type[T]]):
    """Subclasses of one class by the name that they have in an attribute.

    Args:
        kind: what they are, for messages.
        base: the class that they derive from.
        attribute: the attribute with the name; each class has its own.
        group: the entry points of packages that provide more of them.
        built_in: those of torch_bridge.
        check: raises if a class of a program or package cannot be one of them.
    """

    def __init__(
        self,
        kind: str,
        base: type[T],
        attribute: str,
        group: str,
        built_in: Iterable[type[T]],
        check: Callable[[type[T]], None] = lambda _: None,
    ) -> None:
        self.kind, self._check = kind, check
        self._base, self._attribute, self._group = base, attribute, group
        self._built_in = {self._name(each): each for each in built_in}
        self._registered: dict[str, type[T]] = {}
        self._replaced: set[str] = set()
        self._known: dict[str, type[T] | Broken] | None = None
        self._provider: dict[str, str] = {}

    def register(self, kind: type[T], *, replace: bool = False) -> None:
        """Make a class known by its name.

        A class of the same module and name is taken for a new version of the registered one, as
        when a cell of a notebook runs again. Any other class of a known name needs `replace`.
        """
        try:
            name = self._name(kind)
        except TypeError as error:
            base = _public(self._base)
            raise OptionError(
                str(error),
                fix=f"derive it from {base}, and set {self._attribute} = '...' in it",
            ) from None
        self._check(kind)
        before = self._registered.get(name, self._built_in.get(name))
        if before is not None and _words(before) != _words(kind) and not replace:
            raise OptionError(
                f"{self.kind} '{name}' exists already: {_words(before)} and {_words(kind)}",
                fix="choose another name, or pass replace=True",
            )
        self._registered[name] = kind
        if replace:
            self._replaced.add(name)
        self._known = None

    def find(self, name: str) -> type[T]:
        """The class of that name; an error lists near matches."""
        known = self._all()
        if name not in known:
            base = name.partition(":")[0]
            if self.kind == "observer" and name != base and base in known:
                raise OptionError(
                    f"there is no observer '{name}': a number behind a name belongs to a method",
                    fix=f'write {{"method": "{name}"}} in a rule of settings=, or the observer '
                    f"'{base}' with its observer_options",
                )
            raise OptionError(
                f"there is no {self.kind} '{name}'",
                fix=f"{near_matches(name, known)} (one of your own is known after "
                f"torch_bridge.register_{self._attribute}(...), or once its package is installed)",
            )
        found: type[T] = loaded(name, known[name], self.kind)
        return found

    def look_again(self) -> None:
        """Look for packages again, such as those installed since the program started."""
        self._known = None

    def __getitem__(self, name: str) -> type[T]:
        found = self._all()[name]
        if isinstance(found, Broken):
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, found in self._all().items() if not isinstance(found, Broken))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __str__(self) -> str:
        rows = []
        for name, found in self._all().items():
            if isinstance(found, Broken):
                rows.append((name, f"could not be loaded: {found.error}", found.distribution))
            else:
                summary = (found.__doc__ or "").strip().partition("\n")[0]
                rows.append((name, summary, self._provider[name]))
        return table(rows)

    def _all(self) -> dict[str, type[T] | Broken]:
        if self._known is None:
            plugged, broken = plug_ins(self._group, self._collect, self.kind)
            given = (*self._own(), *(p for p in plugged if not self._is_registered(*p[:2])))
            self._known = dict(sorted(all_by_name(given, broken, self.kind).items()))
            self._provider = {name: provider for name, _, provider in given}
        return self._known

    def _own(self) -> Provided:
        built_in = self._built_in.items()
        return (
            *((n, kind, BUILT_IN) for n, kind in built_in if n not in self._registered),
            *((n, kind, kind.__module__) for n, kind in self._registered.items()),
        )

    def _is_registered(self, name: str, kind: type[T]) -> bool:
        """Whether the program registered the same class, or another one in its place."""
        return name in self._replaced or self._registered.get(name) is kind

    def _collect(self, thing: Any) -> dict[str, type[T]]:
        """Those in a module, or the one class given."""
        if isinstance(thing, ModuleType):
            found = named_classes(thing, self._base, self._attribute)
            classes = {self._name(kind): kind for kind in found}
        else:
            classes = {self._name(thing): thing}
        for kind in classes.values():
            self._check(kind)
        return classes

    def _name(self, kind: type[T]) -> str:
        is_kind = isinstance(kind, type) and issubclass(kind, self._base)
        name = vars(kind).get(self._attribute) if is_kind else None
        if not isinstance(name, str) or not name:
            shown = _words(kind) if isinstance(kind, type) else repr(kind)
            raise TypeError(
                f"{shown} is not a subclass of {self._base.__name__} with a name of its own"
            )
        return name


def refuse_misspelt(kind: type, base: type, names: Iterable[str]) -> None:
    """Raise if a class defines a name that `base` lacks and that looks like one of `names`."""
    for given in vars(kind):
        near = (
            []
            if given.startswith("_") or hasattr(base, given)
            else closest(given, [*names], 1, 0.8)
        )
        if near:
            raise OptionError(
                f"{kind.__name__} defines '{given}', which {base.__name__} does not know",
                fix=f"write '{near[0]}', or another name if it is something else",
            )


def named_classes(module: ModuleType, base: type[T], attribute: str) -> Iterator[type[T]]:
    """The subclasses of `base` that a module defines and that have a name of their own."""
    for value in vars(module).values():
        own = isinstance(value, type) and value.__module__ == module.__name__
        if own and issubclass(value, base) and vars(value).get(attribute):
            yield value


def in_package(name: str, path: Iterable[str], base: type[T], attribute: str) -> Iterator[type[T]]:
    """The named subclasses of `base` in all modules of a package."""
    for found in pkgutil.iter_modules(path):
        yield from named_classes(importlib.import_module(f"{name}.{found.name}"), base, attribute)


def table(rows: list[tuple[str, str, str]]) -> str:
    """Names, what they are and who provides them, in columns."""
    widths = [max((len(row[at]) for row in rows), default=0) for at in (0, 1)]
    return "\n".join(f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in rows)


def _public(kind: type) -> str:
    """A class by the package that lists it: torch_bridge.observers.Observer."""
    return f"{kind.__module__.removesuffix('.base')}.{kind.__qualname__}"


def _words(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
