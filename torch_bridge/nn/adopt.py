"""Conversion of a module to another class, with the same parameters."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def adopt(kind: type[M], source: nn.Module) -> M:
    """A module of class `kind` with all attributes of `source`.

    Parameters, buffers and children are the same objects, so tied weights stay tied and an
    optimizer stays valid. The dictionaries that hold them (and the hooks) are copies, so the two
    modules do not change each other. Unlike a constructor call this needs no list of arguments,
    and keeps attributes that the user added.
    """
    made = kind.__new__(kind)
    for name, value in source.__dict__.items():
        made.__dict__[name] = copy.copy(value) if isinstance(value, dict | set) else value
    return made
