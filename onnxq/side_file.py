"""A side file: quantization written next to a clean model, in a target's own format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnxq.graph import Model
from onnxq.qparam_table import QParamTable


@dataclass(frozen=True)
class SideFile:
    """One format: `write` and `read` are inverse to each other for the rows it can hold."""

    name: str
    summary: str
    write: Callable[[QParamTable, Model], str]
    read: Callable[[str, Model], QParamTable]
