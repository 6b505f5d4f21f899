"""Observers: statistics of a tensor, and the scale and zero point that follow from them.

Each is one file with a subclass of `Observer` that has a name in `observer`; its docstring holds
the formula. Those of `by_method` have no name: rules and recipes ask for them by a method of
`onnxq quantize`. Other packages add theirs by the entry points `onnxq.observers`, programs by
`register_observer`.
"""

from __future__ import annotations

from typing import TypeVar

from onnxq.discovery import OBSERVERS_GROUP
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.base import Observer
from torch_bridge.registry import Registry, in_package, refuse_misspelt

__all__ = ["OBSERVERS", "Observer", "QuantizerSpec", "observer", "register_observer"]

Kind = TypeVar("Kind", bound=type[Observer])

_OVERRIDDEN = ("propose", "merge", "range", "scale", "grid")
"""The methods that make an observer; without any of them it is min-max."""


def _check(kind: type[Observer]) -> None:
    """Raise if a class is min-max by a mistake."""
    names = ["only_a_start"]
    if all(getattr(kind, name) is getattr(Observer, name) for name in _OVERRIDDEN):
        names += _OVERRIDDEN
    refuse_misspelt(kind, Observer, names)


OBSERVERS: Registry[Observer] = Registry(
    "observer",
    Observer,
    "observer",
    OBSERVERS_GROUP,
    in_package(__name__, __path__, Observer, "observer"),
    _check,
)
"""The observers by the names that schemes and options use."""


def observer(name: str) -> type[Observer]:
    """The observer of that name; an error lists near matches."""
    return OBSERVERS.find(name)


def register_observer(kind: Kind, *, replace: bool = False) -> Kind:
    """Make an observer known by the name in its `observer`; returns it, as decorators do."""
    OBSERVERS.register(kind, replace=replace)
    return kind
