"""The class that a layer computes as: its own, or a base class whose code it does not change.

Libraries derive classes from torch's layers to initialise or print them differently; others change
what is computed. Only the code that runs in a call tells them apart.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import nn

_CALLED = ("forward", "__call__", "_conv_forward", "_output_padding")
"""Methods of layers that run in a call."""


def plain_type(module: nn.Module, kinds: Collection[type[nn.Module]]) -> type[nn.Module] | None:
    """The class of `kinds` that `module` computes as; None if there is none."""
    own = type(module)
    for kind in own.__mro__:
        if kind in kinds:
            return kind if kind is own or _computes_as(module, kind) else None
    return None


def _computes_as(module: nn.Module, kind: type[nn.Module]) -> bool:
    own: Any = type(module)
    same = all(getattr(own, name, None) is getattr(kind, name, None) for name in _CALLED)
    # A parametrization turns parameters into properties of a class of its own.
    properties = any(isinstance(getattr(own, name, None), property) for name in ("weight", "bias"))
    return same and not properties and "forward" not in vars(module)
