"""The page of public names: `python -m tests.suites.api_page > docs/api.md`.

Fields and constants are described by the string literal below them, which only the source has.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType

PACKAGES = (
    *("onnxq", "onnxq.graph", "onnxq.edit", "onnxq.pass_", "onnxq.pipeline", "onnxq.backend"),
    *("onnxq.quant", "onnxq.side_files", "onnxq.lint", "onnxq.errors"),
    "passes.phases",
)
"""What users and plug-ins import; `torch_bridge` is described in its own docstring."""
_MADE = ("onnxq.backend", "onnxq.quant", "onnxq.side_files", "onnxq.lint")
"""Packages whose dataclasses are values that plug-ins make, so that their fields are listed."""

_ALIASES = {"Kinds": "frozenset[str]", "Pairs": "frozenset[tuple[str, str]]"}


def lines() -> Iterator[str]:
    """The page, line by line."""
    yield "# Public names"
    yield ""
    yield "What `__all__` of each package lists, and the passes: `passes.to_qdq.ToQdq` is `to-qdq`,"
    yield "and so on (`onnxq passes`). Everything else may move without notice. Of values that"
    yield "plug-ins make, such as a backend, the fields are listed below."
    for package in PACKAGES:
        module = importlib.import_module(package)
        yield ""
        yield f"## {package}"
        yield ""
        yield _first_line(module.__doc__)
        yield ""
        yield "| name | |"
        yield "|---|---|"
        for name in sorted(module.__all__, key=str.lower):
            yield f"| `{name}` | {_about(module, name)} |"
        for name in sorted(module.__all__, key=str.lower) if package in _MADE else ():
            thing = getattr(module, name)
            if inspect.isclass(thing) and is_dataclass(thing):
                yield from _fields(thing)


def page() -> str:
    """The whole page."""
    return "\n".join(lines()) + "\n"


def _about(module: ModuleType, name: str) -> str:
    thing = getattr(module, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return _first_line(inspect.getdoc(thing))
    said = _described(_home(module, name)).get(name)
    return "constant" if said is None else _escaped(_sentence(said))


def _fields(kind: type) -> Iterator[str]:
    """A table of the fields that the constructor of a dataclass takes."""
    taken = [each for each in fields(kind) if each.init and not each.name.startswith("_")]
    if not taken:
        return
    said: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if is_dataclass(base):
            said |= _described(base.__module__, base.__name__)
    yield ""
    yield f"### {kind.__name__}"
    yield ""
    yield "| field | type | default | |"
    yield "|---|---|---|---|"
    for each in taken:
        words = _escaped(_sentence(said.get(each.name, "")))
        yield f"| `{each.name}` | `{_escaped(_type(each))}` | {_default(each)} | {words} |"


def _type(each: Field[object]) -> str:
    text = each.type if isinstance(each.type, str) else each.type.__name__
    return _ALIASES.get(text, text)


def _default(each: Field[object]) -> str:
    if each.default is MISSING:
        return "" if each.default_factory is MISSING else f"`{each.default_factory()!r}`"
    value = each.default
    if isinstance(value, frozenset):
        words = ", ".join(sorted(map(repr, value)))
        return f"`{{{words}}}`" if words else "none"
    if is_dataclass(value):
        return f"`{type(value).__name__}(...)`"
    if isinstance(value, Enum):
        return f"`{type(value).__name__}.{value.name}`"
    shown = value.__name__ if inspect.isfunction(value) else repr(value)
    return f"`{_escaped(shown)}`"


def _home(module: ModuleType, name: str) -> str:
    """The module that defines what `module` lists."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any(each.name == name for each in node.names):
            return _home(importlib.import_module(str(node.module)), name)
    return module.__name__


@functools.cache
def _described(module: str, kind: str = "") -> dict[str, str]:
    """The string literals below the constants of a module, or below the fields of a class."""
    source = Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8")
    body: Sequence[ast.stmt] = ast.parse(source).body
    if kind:
        found = (n for n in body if isinstance(n, ast.ClassDef) and n.name == kind)
        body = next((node.body for node in found), [])
    said = {}
    for node, below in itertools.pairwise(body):
        literal = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if literal and isinstance(below.value.value, str):
            for name in _assigned(node):
                said[name] = inspect.cleandoc(below.value.value)
    return said


def _assigned(node: ast.stmt) -> list[str]:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    parts = [each for t in targets for each in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return [part.id for part in parts if isinstance(part, ast.Name)]


def _sentence(text: str) -> str:
    """The first paragraph, on one line."""
    return " ".join(text.partition("\n\n")[0].split())


def _first_line(text: str | None) -> str:
    assert text
    return _escaped(text.partition("\n")[0])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
