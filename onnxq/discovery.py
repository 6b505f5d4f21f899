"""Finding plug-ins: a scan of the built-in packages plus entry points.

Passes are found here; `onnxq.backend`, `onnxq.side_files.side_file` and the registries of
`torch_bridge` find theirs with the same functions.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from onnxq.errors import OptionError, near_matches
from onnxq.pass_ import Pass

PASSES_GROUP = "onnxq.passes"
ALGORITHMS_GROUP = "onnxq.algorithms"
OBSERVERS_GROUP = "onnxq.observers"
PATTERNS_GROUP = "onnxq.patterns"
"""The last three are for training: `torch_bridge` loads them."""

Provided = tuple[tuple[str, Any, str], ...]
"""Names, what they stand for, and who provides it."""


@dataclass(frozen=True)
class Broken:
    """A plug-in that cannot be imported: shown in listings, raised only when asked for."""

    name: str
    error: str
    distribution: str


def passes() -> Mapping[str, type[Pass] | Broken]:
    """All known passes by name."""
    return discover("passes", PASSES_GROUP, _passes_in, "pass")


def find_pass(name: str) -> type[Pass]:
    """The pass of that name."""
    found: type[Pass] = find(name, passes(), "pass", "onnxq passes")
    return found


def find(name: str, known: Mapping[str, Any], kind: str, command: str) -> Any:
    """What is known by that name."""
    if name not in known:
        meant = _SHORT_NAMES.get(name.lower())
        near = f"did you mean '{meant}'?" if meant in known else near_matches(name, known)
        raise OptionError(f"unknown {kind} '{name}'", fix=f"{near} ('{command}' lists all)")
    return loaded(name, known[name], kind)


_SHORT_NAMES = {"ort": "onnxruntime", "trt": "tensorrt", "ov": "openvino"}
"""What people call some targets: too short to resemble the name."""


def loaded(name: str, found: Any, kind: str) -> Any:
    """What was found by that name; an error if it cannot be imported."""
    if isinstance(found, Broken):
        raise OptionError(
            f"{kind} '{name}' could not be loaded: {found.error}",
            fix=f"repair or uninstall the package '{found.distribution}', which provides it",
        )
    return found


def _passes_in(thing: Any) -> dict[str, Any]:
    """Passes in a module, or the one class given."""
    if isinstance(thing, ModuleType):
        own = (c for _, c in inspect.getmembers(thing, inspect.isclass))
        return {
            c.name: c
            for c in own
            if issubclass(c, Pass) and c.name and c.__module__ == thing.__name__
        }
    if not (inspect.isclass(thing) and issubclass(thing, Pass) and thing.name):
        raise TypeError(f"{thing!r} is not a named subclass of onnxq.pass_.Pass")
    thing.options()  # a field that has no text form shows here, not in the middle of a listing
    return {thing.name: thing}


@functools.cache
def in_own_file(
    name: str, package: str, group: str, collect: Callable[[Any], dict[str, Any]]
) -> Any | None:
    """What a module of `package` provides under its own name, without importing the others.

    None if there is no such module, or if there are plug-ins: two may provide the same name.
    """
    module = name.replace("-", "_")
    home = importlib.import_module(package)
    known = (info.name for info in pkgutil.iter_modules(home.__path__))
    if module not in known or importlib.metadata.entry_points(group=group):
        return None
    return collect(importlib.import_module(f"{package}.{module}")).get(name)


@functools.cache
def discover(
    package: str, group: str, collect: Callable[[Any], dict[str, Any]], kind: str
) -> Mapping[str, Any]:
    """Everything that `collect` finds in the modules of `package` and in the entry points."""
    home = importlib.import_module(package)
    built_in = tuple(
        (name, thing, "onnxq")
        for info in pkgutil.iter_modules(home.__path__, package + ".")
        for name, thing in collect(importlib.import_module(info.name)).items()
    )
    plugged, broken = plug_ins(group, collect, kind)
    return dict(sorted(all_by_name((*built_in, *plugged), broken, kind).items()))


def plug_ins(
    group: str, collect: Callable[[Any], dict[str, Any]], kind: str
) -> tuple[Provided, list[Broken]]:
    """What `collect` finds in the entry points of installed packages, and those that fail.

    An empty tuple says that there is nothing to find: loading the module was the purpose.
    """
    found: list[tuple[str, Any, str]] = []
    broken: list[Broken] = []
    for entry in importlib.metadata.entry_points(group=group):
        distribution = entry.dist.name if entry.dist is not None else entry.value
        try:
            thing = entry.load()
            things = collect(thing)
            if not things and thing != ():
                raise TypeError(f"'{entry.value}' contains no {kind}")
        except Exception as error:  # a plug-in may fail in any way; the listing shows how
            broken.append(Broken(entry.name, f"{type(error).__name__}: {error}", distribution))
            continue
        found += ((name, thing, distribution) for name, thing in things.items())
    return tuple(found), broken


def all_by_name(provided: Provided, broken: list[Broken], kind: str) -> dict[str, Any]:
    """Everything by its name; two things of one name are an error that names both providers."""
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, thing, provider in provided:
        if name in found:
            raise clash(kind, name, origin[name], provider)
        found[name], origin[name] = thing, provider
    for plug_in in broken:  # never in the way of one that works
        free = plug_in.name not in found
        found[plug_in.name if free else f"{plug_in.name} ({plug_in.distribution})"] = plug_in
    return found


def clash(kind: str, name: str, first: str, second: str) -> OptionError:
    """The error about two things of one name."""
    if first == second:
        return OptionError(
            f"{kind} '{name}' is provided twice by {first}",
            fix=f"give each {kind} of {first} a name of its own: the name is an attribute of it, "
            "not that of its entry point",
        )
    return OptionError(
        f"{kind} '{name}' is provided by both {first} and {second}",
        fix="uninstall one of them, or rename it",
    )
