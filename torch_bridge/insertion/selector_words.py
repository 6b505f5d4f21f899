"""The words that select a class of modules or a function: a rule in a file says them.

    nn.Linear              torch.nn.Linear
    a class of my_net.py   my_net.Block
    torch.matmul           torch.matmul

A function has the words of all its forms: x @ y, x.matmul(y) and operator.matmul(x, y) are all
selected by torch.matmul, since tracers differ in the form that they record.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

_HOMES: dict[str, Any] = {
    "torch": torch,
    "torch.nn.functional": F,
    "operator": operator,
    "torch.Tensor": torch.Tensor,
}
"""Where torch's functions are found, the first one first."""
_OTHER_NAMES = {
    **{"iadd": "add", "isub": "sub", "imul": "mul", "imatmul": "matmul"},
    **{"truediv": "div", "itruediv": "div"},
}
"""Functions of operator that have another name than those of torch."""


def words(selector: Any) -> str:
    """The text that selects the same: of a class or a function, or a text as it is."""
    if isinstance(selector, str):
        return selector
    if isinstance(selector, fx.Node):
        return selector.name
    name = str(getattr(selector, "__qualname__", selector))
    if isinstance(selector, type):
        public = getattr(nn, selector.__name__, None) is selector
        return f"torch.nn.{name}" if public else f"{selector.__module__}.{name}"
    function, known = _public_names().get(id(selector), (None, ""))
    if function is selector:
        return known
    return f"{getattr(selector, '__module__', None) or 'builtins'}.{name}"


def class_words(kind: type) -> Iterator[str]:
    """Those that select the objects of a class: its own, and those of its base classes."""
    yield from map(words, kind.__mro__[:-1])


def function_words(target: Callable[..., Any] | str) -> Iterator[str]:
    """Those that select the calls of a function, or of the method of that name."""
    own = f"torch.Tensor.{target}" if isinstance(target, str) else words(target)
    yield own
    home, _, name = own.rpartition(".")
    if home not in _HOMES:
        return
    plain = _OTHER_NAMES.get(name, name.removesuffix("_"))
    others = [other for other, meant in _OTHER_NAMES.items() if meant == plain]
    for path, place in _HOMES.items():
        for each in (plain, f"{plain}_", *others):
            if f"{path}.{each}" != own and callable(getattr(place, each, None)):
                yield f"{path}.{each}"


@functools.cache
def _public_names() -> dict[int, tuple[Any, str]]:
    """Torch's functions and their names, by identity: some have no name in themselves."""
    found: dict[int, tuple[Any, str]] = {}
    for path, place in _HOMES.items():
        for name in dir(place) if isinstance(place, type) else vars(place):
            value = None if name.startswith("_") else getattr(place, name, None)
            if callable(value):
                found.setdefault(id(value), (value, f"{path}.{name}"))
    return found
