"""Every place in a model that holds a module; a shared module has several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn


class Place(NamedTuple):
    """One attribute of a module that holds another module."""

    parent: nn.Module
    name: str
    path: str
    child: nn.Module

    def put(self, module: nn.Module) -> None:
        """Hold `module` here instead."""
        setattr(self.parent, self.name, module)


def places(model: nn.Module) -> Iterator[Place]:
    """All places below `model`, parents first; the model may be edited while iterating."""
    for path, child in list(model.named_modules(remove_duplicate=False)):
        if path:
            prefix, _, name = path.rpartition(".")
            yield Place(model.get_submodule(prefix), name, path, child)
