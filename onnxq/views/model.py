"""A model as a table: versions, inputs, outputs, operators."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from onnxq.views.screen import new_table, shown, shown_lines

if TYPE_CHECKING:
    from onnxq.graph import Model


def model(found: Model, most: int) -> RenderableType:
    """The model in a table whose cells have at most `most` lines."""
    table = new_table(f"Model {found.graph.name or ''}".rstrip(), "", "")
    table.show_header = False
    table.columns[0].style = "bold"
    versions = ", ".join(f"{domain or 'ai.onnx'} {v}" for domain, v in found.opsets.items())
    operators = Counter(_op_name(node) for node in found.nodes())
    listed = [f"{name} {count}" for name, count in operators.most_common(most)]
    more = [f"and {len(operators) - most} other kinds"] if len(operators) > most else []
    for word, lines in (
        ("opset", [versions]),
        ("inputs", [_typed(tensor) for tensor in found.graph.inputs]),
        ("outputs", [_typed(tensor) for tensor in found.graph.outputs]),
        ("operators", [", ".join(listed + more) or "none"]),
    ):
        rest = [f"and {len(lines) - most} more"] if len(lines) > most else []
        table.add_row(word, shown_lines(lines[:most] + rest))
    if found.origin is not None:
        table.add_row("file", shown(str(found.origin.path)))
    return table


def _op_name(node: Any) -> str:
    domain = node.domain or ""
    return f"{domain}::{node.op}" if domain not in ("", "ai.onnx") else str(node.op)


def _typed(tensor: Any) -> str:
    shape = tensor.shape
    sides = "?" if shape is None else ", ".join("?" if s is None else str(s) for s in shape)
    kind = "" if tensor.dtype is None else f"  {tensor.dtype}"
    return f"{tensor.name}{kind}[{sides}]"


__all__ = ["model"]
