"""The state of this machine: packages, CPU, plug-ins, and whether onnxruntime runs a model."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq import __version__, discovery
from onnxq.backend import BACKENDS_GROUP, backends
from onnxq.discovery import PASSES_GROUP, Broken
from onnxq.environment.packages import Package, packages
from onnxq.errors import OnnxqError, near_matches
from onnxq.running import sessions
from onnxq.running.cpu import Cpu, this_cpu
from onnxq.side_files.side_file import FORMATS_GROUP, formats
from onnxq.views.shown_result import ShownResult
from onnxq.workflows import demo

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class PlugIn:
    """A plug-in of another package."""

    kind: str
    name: str
    distribution: str
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return dict(vars(self))


@dataclass(frozen=True, repr=False)
class Checkup(ShownResult):
    """What `doctor` found."""

    version: str
    python: str
    system: str
    cpu: Cpu
    packages: tuple[Package, ...]
    plug_ins: tuple[PlugIn, ...]
    session_problem: str = ""
    """Why onnxruntime did not run a small model; '' if it did."""

    def __repr__(self) -> str:
        state = "works" if self.healthy else "cannot work"
        return f"<Checkup: onnxq {self.version} {state} on {self.system}>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views import checkup

        return checkup.checkup(self)

    @property
    def healthy(self) -> bool:
        """Whether everything works that onnxq needs. Plug-ins and extras do not count."""
        return not self.session_problem and not any(p.is_broken for p in self.packages)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "version": self.version,
            "python": self.python,
            "system": self.system,
            "healthy": self.healthy,
            "session_problem": self.session_problem,
            "cpu": self.cpu.to_json(),
            "packages": [p.to_json() for p in self.packages],
            "plug_ins": [p.to_json() for p in self.plug_ins],
        }


def doctor() -> Checkup:
    """Look at what is installed here, what works, and what this CPU means for int8."""
    return Checkup(
        version=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cpu=this_cpu(),
        packages=tuple(packages()),
        plug_ins=tuple(_plug_ins()),
        session_problem=_session_problem(),
    )


def _plug_ins() -> list[PlugIn]:
    def of_training(kind: str, group: str) -> Callable[[], Mapping[Any, Any]]:
        """What packages provide; torch_bridge itself looks for clashes with its own."""

        def known() -> Mapping[Any, Any]:
            found, broken = discovery.plug_ins(group, lambda thing: _names(kind, thing), kind)
            return discovery.all_by_name(found, broken, kind)

        return known

    kinds: tuple[tuple[str, str, Callable[[], Mapping[Any, Any]]], ...] = (
        ("pass", PASSES_GROUP, discovery.passes),
        ("backend", BACKENDS_GROUP, backends),
        ("format", FORMATS_GROUP, formats),
        *(
            (name, group, of_training(name, group))
            for name, group in (
                ("algorithm", discovery.ALGORITHMS_GROUP),
                ("observer", discovery.OBSERVERS_GROUP),
                ("pattern", discovery.PATTERNS_GROUP),
            )
        ),
    )
    found = []
    for kind, group, known in kinds:
        problems: dict[tuple[str, str], str] = {}
        clash = ""
        try:
            broken = [each for each in known().values() if isinstance(each, Broken)]
            problems = {(each.name, each.distribution): each.error for each in broken}
        except OnnxqError as error:  # two packages of one name: no listing at all
            clash = error.what
        for entry in importlib.metadata.entry_points(group=group):
            owner = entry.dist.name if entry.dist is not None else entry.value
            problem = problems.get((entry.name, owner), clash)
            found.append(PlugIn(kind, entry.name, owner, problem))
    return [*found, *_in_unknown_groups({group for _, group, _ in kinds})]


def _names(kind: str, thing: Any) -> dict[Any, Any]:
    """What an entry point of training provides by name, without torch_bridge: classes, patterns."""
    each = thing if isinstance(thing, tuple | list) else (thing,)
    named = {getattr(one, "name" if kind == "pattern" else kind, None): one for one in each}
    if any(not isinstance(n, str) or getattr(one, "backends", ()) for n, one in named.items()):
        return {id(thing): thing}  # a module, or patterns that share names between backends
    return named


def _in_unknown_groups(known: set[str]) -> Iterator[PlugIn]:
    """Entry points that nothing reads, since their group is misspelt."""
    every = importlib.metadata.entry_points()
    for group in sorted(every.groups - known):
        if group.startswith("onnxq."):
            problem = f"nothing reads the group '{group}': {near_matches(group, known)}"
            for entry in every.select(group=group):
                owner = entry.dist.name if entry.dist is not None else entry.value
                yield PlugIn("plug-in", entry.name, owner, problem)


def _session_problem() -> str:
    """Run a small network in onnxruntime; returns what went wrong."""
    try:
        session = sessions.shipped(demo.build())
        session.run({"image": np.zeros((1, 3, 32, 32), np.float32)})
    except Exception as error:  # whatever is wrong with the installation
        return f"{type(error).__name__}: {error}"
    return ""


__all__ = ["Checkup", "PlugIn", "doctor"]
