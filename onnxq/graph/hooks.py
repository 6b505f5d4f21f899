"""Functions of higher rooms that every model needs: each room sets its own when it is imported.

`onnxq/__init__.py` imports them all, so no model is read or written without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxq.graph.model import Model


@dataclass
class Hooks:
    """Functions that `Model` calls and cannot import."""

    after_reading: Callable[[Model], None]
    """Brings functions of the file into the form that passes rely on."""
    check_nodes: Callable[[Model], None]
    """Rejects nodes that lack inputs or attributes their operator needs."""
    before_writing: Callable[[Model], Model]
    """The model with the functions that its nodes call."""
    raise_opset: Callable[[Model, int, str], None]
    """Raises the default opset, for a reason."""


def _missing(*_: object) -> None:
    raise RuntimeError("onnxq is not imported as a whole: use 'import onnxq'")


HOOKS = Hooks(_missing, _missing, _missing, _missing)  # type: ignore[arg-type]
