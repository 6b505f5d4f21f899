"""Finding passes, backends and formats: a scan of the built-in packages plus entry points."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from onnxq.argument_types import takes
from onnxq.errors import OptionError, near_matches
from onnxq.pass_ import Pass

if TYPE_CHECKING:
    from onnxq.backend import Backend
    from onnxq.side_file import SideFile

PASSES_GROUP = "onnxq.passes"
BACKENDS_GROUP = "onnxq.backends"
FORMATS_GROUP = "onnxq.formats"


@dataclass(frozen=True)
class Broken:
    """A plug-in that cannot be imported: shown in listings, raised only when asked for."""

    name: str
    error: str
    distribution: str


def passes() -> Mapping[str, type[Pass] | Broken]:
    """All known passes by name."""
    return _discover("passes", PASSES_GROUP, _passes_in, "pass")


def backends() -> Mapping[str, Backend | Broken]:
    """All known backends by name."""
    return _discover("onnxq.backends", BACKENDS_GROUP, _backends_in, "backend")


def formats() -> Mapping[str, SideFile | Broken]:
    """All known side-file formats by name."""
    return _discover("onnxq.formats", FORMATS_GROUP, _formats_in, "format")


def find_pass(name: str) -> type[Pass]:
    """The pass of that name."""
    found: type[Pass] = _find(name, passes(), "pass", "onnxq passes")
    return found


def find_backend(name: str) -> Backend:
    """The backend of that name."""
    found: Backend = _find(name, backends(), "backend", "onnxq backends")
    return found


@takes(variant=(str, None))
def chosen_backend(backend: str | Backend, variant: str | None = None) -> Backend:
    """A backend, by its name or itself, as `variant` deploys it (None: in its own way)."""
    found = find_backend(backend) if isinstance(backend, str) else backend
    return found if variant is None else found.variant(variant)


def find_format(name: str) -> SideFile:
    """The side-file format of that name."""
    found: SideFile = _find(name, formats(), "format", "onnxq formats")
    return found


def _find(name: str, known: Mapping[str, Any], kind: str, command: str) -> Any:
    if name not in known:
        raise OptionError(
            f"there is no {kind} '{name}'",
            fix=f"{near_matches(name, known)} ('{command}' lists all)",
        )
    found = known[name]
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


def _backends_in(thing: Any) -> dict[str, Any]:
    from onnxq.backend import Backend

    if isinstance(thing, ModuleType):
        backend = getattr(thing, "BACKEND", None)
        return {} if backend is None else {backend.name: backend}
    if not isinstance(thing, Backend):
        raise TypeError(f"{thing!r} is not an onnxq.backend.Backend")
    return {thing.name: thing}


def _formats_in(thing: Any) -> dict[str, Any]:
    from onnxq.side_file import SideFile

    if isinstance(thing, ModuleType):
        thing = getattr(thing, "FORMAT", None)
        return {} if thing is None else {thing.name: thing}
    if not isinstance(thing, SideFile):
        raise TypeError(f"{thing!r} is not an onnxq.side_file.SideFile")
    return {thing.name: thing}


@functools.cache
def _discover(
    package: str, group: str, collect: Callable[[Any], dict[str, Any]], kind: str
) -> Mapping[str, Any]:
    home = importlib.import_module(package)
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for info in pkgutil.iter_modules(home.__path__, package + "."):
        for name, thing in collect(importlib.import_module(info.name)).items():
            found[name], origin[name] = thing, "onnxq"
    broken: list[Broken] = []
    for entry in importlib.metadata.entry_points(group=group):
        distribution = entry.dist.name if entry.dist is not None else entry.value
        try:
            things = collect(entry.load())
            if not things:
                raise TypeError(f"'{entry.value}' holds no {kind}")
        except Exception as error:  # a plug-in may fail in any way; the listing shows how
            broken.append(Broken(entry.name, f"{type(error).__name__}: {error}", distribution))
            continue
        for name, thing in things.items():
            if name in found:
                raise OptionError(
                    f"{kind} '{name}' is provided by both {origin[name]} and {distribution}",
                    fix="uninstall one of them, or rename it",
                )
            found[name], origin[name] = thing, distribution
    for plug_in in broken:  # never in the way of one that works
        free = plug_in.name not in found
        found[plug_in.name if free else f"{plug_in.name} ({plug_in.distribution})"] = plug_in
    return dict(sorted(found.items()))
