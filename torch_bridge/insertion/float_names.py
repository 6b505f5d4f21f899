"""Where each entry of the float model's state_dict is in the prepared model.

Batch norms move into the layers they are fused with, the stacked projections of an attention become
three layers, and a module with two names has one of them in a graph. Tensors stay the same objects
through all of that, except those of attention, so an entry is found by its tensor and not by rules
about names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

EXTRA = "_extra_state"
"""The end of the names that torch gives to what modules save beside their tensors."""


@dataclass(frozen=True)
class FloatNames:
    """The names of a float model's state in the prepared model."""

    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the name in the float model; several tensors are stacked along their first axis."""
    unused: dict[str, Any] = field(default_factory=dict)
    """Entries of the float model that the graph does not read, with their values."""
    order: tuple[str, ...] = ()
    """All names, as the float model has them."""


def float_tensors(before: Mapping[str, Any], model: nn.Module) -> dict[str, tuple[Any, ...]]:
    """The tensors that hold each entry of a state after modules of `model` were replaced.

    `before` is the state of the model before, with its own tensors. Where these are gone, there are
    others of the same name, or a method `parts` of the module says which they are.
    """
    state = model.state_dict(keep_vars=True)
    kept = {id(value) for value in state.values()}
    modules = dict(model.named_modules(remove_duplicate=False))
    found: dict[str, tuple[Any, ...]] = {}
    for name, value in before.items():
        path, _, part = name.rpartition(".")
        parts = getattr(modules.get(path), "parts", None)
        if id(value) in kept:
            found[name] = (value,)
        elif name in state:
            found[name] = (state[name],)
        else:
            found[name] = parts(part) if callable(parts) else (value,)
    return found


def float_names(tensors: Mapping[str, tuple[Any, ...]], prepared: nn.Module) -> FloatNames:
    """Where the tensors of the float model are in the prepared one."""
    state = prepared.state_dict(keep_vars=True)
    by_tensor = {id(value): name for name, value in reversed(state.items())}
    places: dict[str, tuple[str, ...]] = {}
    unused: dict[str, Any] = {}
    for name, held in tensors.items():
        there = [by_tensor.get(id(value)) for value in held]
        if all(there):
            places[name] = tuple(filter(None, there))
        elif name in state and name.endswith(EXTRA):  # made anew by every call
            places[name] = (name,)
        else:
            values = [v.detach().clone() if isinstance(v, Tensor) else v for v in held]
            unused[name] = joined(values)
    return FloatNames(places, unused, tuple(tensors))


def joined(values: list[Any]) -> Any:
    """One value, or tensors stacked along their first axis."""
    return values[0] if len(values) == 1 else torch.cat(values)
