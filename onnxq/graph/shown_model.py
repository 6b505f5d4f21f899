"""How a model shows itself: a part of `Model`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.views.shown_result import ShownResult

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onnxq.graph import Model


class ShownModel(ShownResult):
    """Lets `repr` tell a model in one line, and `print` in a table."""

    def __repr__(self: Model) -> str:  # type: ignore[misc]
        name = f" '{self.graph.name}'" if self.graph.name else ""
        return f"<Model{name}: {len(self.nodes())} nodes, opset {self.opset}>"

    def _view(self: Model, most: int) -> RenderableType:  # type: ignore[misc]
        from onnxq.views import model

        return model.model(self, most)
