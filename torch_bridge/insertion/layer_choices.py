"""What ordered rules say about the modules and nodes of a model.

Rules and their order are those of `onnxq.quant.settings`. They are applied to the model as the user
knows it; fusing keeps the paths of layers and the names of nodes.
"""

from __future__ import annotations

from torch import fx

from onnxq.quant.settings import Layers, LayerSettings, Settings
from torch_bridge.insertion.selectors import Part, Selection

_PLAIN = LayerSettings()


class LayerChoices:
    """The settings of each module and node; a rule without a match is an error."""

    def __init__(self, settings: Settings | None = None, parts: Layers | None = None) -> None:
        rules = Settings() if settings is None else settings
        self._chosen = rules.of_layers(parts or {})

    def of_module(self, path: str) -> LayerSettings:
        """The settings of the module at `path`."""
        return self._chosen.get(Part("module", path), _PLAIN)

    def of_node(self, node: fx.Node) -> LayerSettings:
        """The settings of a node: its own, or those of the module it calls."""
        found = self._chosen.get(Part("node", node.name))
        if found is None and node.op == "call_module":
            return self.of_module(str(node.target))
        return _PLAIN if found is None else found


class FloatParts(Selection):
    """What stays float: chosen by `exclude`, or by a rule that comes before others."""

    def __init__(self, excluded: Selection, choices: LayerChoices) -> None:
        super().__init__(excluded.modules, excluded.nodes)
        # Asked by itself: a rule for a module gives way to an earlier one for a layer inside it.
        self._excluded, self._choices = excluded, choices

    def has_module(self, path: str) -> bool:
        """Whether the module at `path` stays float."""
        return self._excluded.has_module(path) or self._choices.of_module(path).float

    def has_node(self, node: fx.Node) -> bool:
        """Whether the node stays float."""
        return self._excluded.has_node(node) or self._choices.of_node(node).float
