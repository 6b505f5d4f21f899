"""Turning a module into one of another class with the same parameters."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def adopt(kind: type[M], source: nn.Module) -> M:
    """A module of class `kind` with all that `source` has.

    Parameters, buffers and children are the same objects, so weights that were tied stay tied and
    an optimizer that holds them stays valid; the tables that hold them (and the hooks) are copies,
    so the two modules do not change each other. Unlike a constructor call this needs no list of
    arguments, and keeps what the user hung on the module.
    """
    made = kind.__new__(kind)
    for name, value in source.__dict__.items():
        made.__dict__[name] = copy.copy(value) if isinstance(value, dict | set) else value
    return made
