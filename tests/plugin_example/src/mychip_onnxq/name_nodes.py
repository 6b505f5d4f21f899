"""A third-party pass: one file, one class."""

from dataclasses import dataclass
from typing import ClassVar

from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class NameNodes(Pass):
    """Name every node that has no name; mychip's profiler shows layers by name."""

    name: ClassVar[str] = "name-nodes"
    exact: ClassVar[bool] = True

    prefix: str = "layer"

    def run(self, model: Model, trace: Trace) -> None:
        """Name the nodes in order."""
        for node in model.nodes():
            if not node.name:
                node.name = model.fresh_name(f"{self.prefix}.{node.op}")
                trace.rewrote(node)
