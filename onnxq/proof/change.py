"""A lossy change of a model: not part of a proof, but measured by it."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.graph import Model
from onnxq.pass_ import Trace

RECAST = "recast"
"""Name of the trace of a model that got the quantizers of its target instead of its own."""

JUDGED = (RECAST, "approximate-grids", "share-quantizers", "widen-range")
"""Changes whose cost is judged: they move quantizers, or widen their ranges."""


@dataclass(frozen=True)
class Change:
    """A change made by lossy passes."""

    before: Model
    """The model before the first of them."""
    after: Model
    traces: tuple[Trace, ...]
    """The traces of the lossy passes that rewrote something."""

    def notes(self) -> list[str]:
        """The changes in words, with some places for every pass."""
        notes = []
        for trace in self.traces:
            shown = "; ".join(trace.rewrites[:5])
            more = f"; and {len(trace.rewrites) - 5} more" if len(trace.rewrites) > 5 else ""
            notes.append(f"{trace.name} changes what the model computes: {shown}{more}")
        return notes
