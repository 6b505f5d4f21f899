"""The module that computes as the call of a function does, with the arguments of that call.

    F.leaky_relu(x, 0.2)      nn.LeakyReLU(negative_slope=0.2)
    x.softmax(-1)             nn.Softmax(-1)

Arguments after the first are carried by their names. Functions written in C have no names to read:
their arguments are taken in the order of the constructor. Whether an operation is done in place
changes no value, so a constructor without that option does without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import fx, nn


def module_of_call(
    node: fx.Node, kind: type[nn.Module], made: Callable[..., nn.Module] | None = None
) -> nn.Module | None:
    """A module equal to the call at `node`; None if an argument has no place in it.

    Args:
        node: a call of a function or method, whose first argument is the tensor.
        kind: the class of the module.
        made: makes the module from the other arguments instead of the constructor.
    """
    values, named = list(node.args[1:]), dict(node.kwargs)
    if any(isinstance(value, fx.Node) for value in (*values, *named.values())):
        return None
    if made is None:
        parameters = _parameters_after_the_first(node.target)
        if parameters is not None:
            if len(values) > len(parameters):
                return None
            defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
            positions = {p.name: value for p, value in zip(parameters, values, strict=False)}
            values, named = [], defaults | positions | named
        named = _kept(named, kind)
    maker: Callable[..., nn.Module] = kind if made is None else made
    try:
        inspect.signature(maker).bind(*values, **named)
    except TypeError:
        return None
    found = maker(*values, **named)
    if not isinstance(found, nn.Module):
        raise TypeError(f"made= returned {found!r}, not a module")
    return found


def _parameters_after_the_first(target: Any) -> list[inspect.Parameter] | None:
    """The parameters of a function; None if they cannot be known."""
    try:
        found = list(inspect.signature(target).parameters.values())[1:]
    except (TypeError, ValueError):  # the name of a method, a function in C
        return None
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return found if all(p.kind in plain for p in found) else None


def _kept(named: Mapping[str, Any], kind: type[nn.Module]) -> dict[str, Any]:
    """The arguments without those that do not matter and that the constructor does not have."""
    known = inspect.signature(kind).parameters
    return {
        name: value
        for name, value in named.items()
        if name in known or not (name == "inplace" or name.startswith("_") or value is None)
    }
