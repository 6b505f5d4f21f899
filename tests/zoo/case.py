"""A model and one call of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn


class Case(NamedTuple):
    """A model and one call of it."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def case(model: nn.Module, *args: Any, **kwargs: Any) -> Case:
    """The call model(*args, **kwargs)."""
    return Case(model, args, kwargs)
