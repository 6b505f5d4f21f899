"""Checks of an observer that a program registers or a package provides."""

from __future__ import annotations

from torch_bridge.observers.base import Observer
from torch_bridge.registry import refuse_misspelt

_OVERRIDDEN = ("propose", "merge", "range", "scale", "grid")
"""The methods that make an observer; without any of them it is min-max."""


def check_observer(kind: type[Observer]) -> None:
    """Raise if a class is min-max by a mistake."""
    names = ["only_a_start"]
    if all(getattr(kind, name) is getattr(Observer, name) for name in _OVERRIDDEN):
        names += _OVERRIDDEN
    refuse_misspelt(kind, Observer, names)
