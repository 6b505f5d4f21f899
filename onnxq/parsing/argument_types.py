"""Arguments of the wrong type, reported with the name of the parameter.

Public functions declare with `takes` what they take; type checkers report the same statically.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from onnxq.near_words import closest

Kind: TypeAlias = Any
"""A type, also one of collections.abc, or None for the type of None."""

P = ParamSpec("P")
T = TypeVar("T")

PATH: tuple[Kind, ...] = (str, os.PathLike)
INTEGER: tuple[Kind, ...] = (int, np.integer)
NUMBER: tuple[Kind, ...] = (int, float, np.integer, np.floating)
FLAG: tuple[Kind, ...] = (bool, np.bool_)


def takes(**kinds: Kind | tuple[Kind, ...]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function raise TypeError if an argument has none of the types given for it.

    True is not a number here. For a variadic parameter every argument is checked.
    """
    wanted = {name: _several(kind) for name, kind in kinds.items()}

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        assert wanted.keys() <= signature.parameters.keys()

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:  # which names no function
                raise TypeError(f"{function.__name__}(): {error}{_near(error)}") from None
            for name, value in bound.arguments.items():
                if name in wanted:
                    many = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
                    for one in value if many else (value,):
                        check(function.__name__, name, one, wanted[name])
            return function(*args, **kwargs)

        def _near(error: TypeError) -> str:
            """What a misspelt keyword may mean."""
            near = [
                each
                for word in re.findall(r"unexpected keyword argument '(\w+)'", str(error))
                for each in closest(word, list(signature.parameters), 1)
            ]
            return f"; did you mean '{near[0]}'?" if near else ""

        return checked

    return decorate


def check(function: str, name: str, value: object, kinds: tuple[Kind, ...]) -> None:
    """Raise TypeError if `value` has none of the types."""
    known = _known(kinds)
    if isinstance(value, known) and not (isinstance(value, bool) and bool not in known):
        return
    named = (kind for kind in known if kind not in _TWINS)
    names = ("None" if kind is type(None) else kind.__name__ for kind in named)
    given = type(value).__name__
    given = "None" if value is None else f"{'an' if given[0] in 'aeiou' else 'a'} {given}"
    hint = "; make a Model of it with onnxq.from_proto" if _is_proto(value, known) else ""
    raise TypeError(f"{function}() expects {' or '.join(names)} for '{name}', not {given}{hint}")


def _is_proto(value: object, known: tuple[type[Any], ...]) -> bool:
    """Whether a model is given as `onnx` has it, and a graph is wanted."""
    wanted = {kind.__name__ for kind in known}
    return type(value).__name__ == "ModelProto" and "Model" in wanted


def field_kinds(**kinds: Kind | tuple[Kind, ...]) -> dict[str, tuple[type[Any], ...]]:
    """The types of fields, for `check_fields`."""
    return {name: _known(_several(kind)) for name, kind in kinds.items()}


def check_fields(made: object, kinds: dict[str, tuple[type[Any], ...]]) -> None:
    """Raise TypeError if a field of `made` has none of its types; True is a number here."""
    for name, known in kinds.items():
        if not isinstance(getattr(made, name), known):
            check(type(made).__name__, name, getattr(made, name), known)


def _several(kind: Kind | tuple[Kind, ...]) -> tuple[Kind, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _known(kinds: tuple[Kind, ...]) -> tuple[type[Any], ...]:
    return tuple(type(None) if kind is None else kind for kind in kinds)


_TWINS = {np.integer, np.floating, np.bool_}
"""numpy's counterparts of Python's types, which messages name."""
