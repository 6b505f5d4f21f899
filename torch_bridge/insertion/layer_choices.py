"""What ordered rules say about the modules and nodes of a model.

Rules and their order are those of `onnxq.quant.settings`. They are applied to the model as the user
knows it; fusing keeps the paths of layers and the names of nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from torch import fx

from onnxq.quant.settings import Layers, LayerSettings, Settings
from torch_bridge.capture.report import Decided
from torch_bridge.insertion.selector_words import words
from torch_bridge.insertion.selectors import Part, Selection

_PLAIN = LayerSettings()


class LayerChoices:
    """The settings of each module and node; a rule without a match is an error."""

    def __init__(self, settings: Settings | None = None, parts: Layers | None = None) -> None:
        self.settings = (settings or Settings()).in_words(words)
        """The rules as a file holds them."""
        self._deciding: dict[Part, int] = self.settings.deciding(parts or {})

    def of_module(self, path: str) -> LayerSettings:
        """The settings of the module at `path`."""
        return self._of(Part("module", path)) or _PLAIN

    def of_node(self, node: fx.Node) -> LayerSettings:
        """The settings of a node: its own, or those of the module it calls."""
        found = self._of(Part("node", node.name))
        if found is None and node.op == "call_module":
            return self.of_module(str(node.target))
        return found or _PLAIN

    def _of(self, part: Part) -> LayerSettings | None:
        at = self._deciding.get(part)
        return None if at is None else self.settings.rules[at].change

    def below(self, path: str) -> LayerChoices:
        """The choices for what is inside the module at `path`, by paths from there."""
        made = LayerChoices()
        made.settings = self.settings
        made._deciding = {
            Part("module", part.name.removeprefix(f"{path}.")): rule
            for part, rule in self._deciding.items()
            if part.what == "module" and part.name.startswith(f"{path}.")
        }
        return made

    def decided(self, layers: Iterable[Part]) -> list[Decided]:
        """For each rule, those of `layers` that it decides about, or all parts if it has none."""
        wanted = set(layers)
        found = []
        for at, rule in enumerate(self.settings.to_json()):
            parts = [part for part, by in self._deciding.items() if by == at]
            names = [part.name for part in parts if part in wanted] or [p.name for p in parts]
            found.append(Decided(json.dumps(rule, ensure_ascii=False), tuple(dict.fromkeys(names))))
        return found


class FloatParts(Selection):
    """What stays float: chosen by `exclude`, or by a rule that comes before others."""

    def __init__(self, excluded: Selection, choices: LayerChoices) -> None:
        super().__init__(excluded.modules, excluded.nodes)
        # Asked by itself: a rule for a module gives way to an earlier one for a layer inside it.
        self._excluded, self._choices = excluded, choices

    def below(self, path: str) -> FloatParts:
        """What stays float inside the module at `path`, by paths from there."""
        return FloatParts(self._excluded.below(path), self._choices.below(path))

    def has_module(self, path: str) -> bool:
        """Whether the module at `path` stays float."""
        return self._excluded.has_module(path) or self._choices.of_module(path).float

    def has_node(self, node: fx.Node) -> bool:
        """Whether the node stays float."""
        return self._excluded.has_node(node) or self._choices.of_node(node).float

    def reason(self, part: fx.Node | str) -> str:
        """What asks for the node, or the module at a path, to stay float."""
        has = self._excluded
        excluded = has.has_module(part) if isinstance(part, str) else has.has_node(part)
        return super().reason(part) if excluded else "by a rule"
