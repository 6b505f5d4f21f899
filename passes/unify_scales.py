"""Merge the quantizers of a tensor that are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, is_fake_quantize, params_of, set_params
from onnxq.edit import producer, replace, users
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams


@dataclass(frozen=True)
class UnifyScales(Pass):
    """Merge FakeQuantize nodes that put the same tensor on the same grid.

    With `widest`, quantizers of one tensor that differ all take the grid that reaches furthest.
    This changes what the network computes, so each such tensor is reported. Without it they are
    left alone.
    """

    name: ClassVar[str] = "unify-scales"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    widest: bool = False

    def run(self, model: Model, trace: Trace) -> None:
        sources: dict[int, gs.Tensor] = {}
        for node in model.nodes(FAKE_QUANTIZE):
            sources.setdefault(id(node.inputs[0]), node.inputs[0])
        for source in sources.values():
            readers = [n for n, i in users(source) if i == 0 and is_fake_quantize(n)]
            if len(readers) < 2:
                continue
            grids = [params_of(node) for node in readers]
            if self.widest and not all(grid.same_grid(grids[0]) for grid in grids):
                _widen(model, source, readers, grids, trace)
            _merge(model, source, readers, grids, trace)


def _widen(
    model: Model, source: gs.Tensor, nodes: list[gs.Node], grids: list[QParams], trace: Trace
) -> None:
    """Give all nodes the widest of their grids, also in the list `grids`."""
    widest = _widest(grids)
    if isinstance(widest, str):
        trace.skip(f"'{source.name}'", widest)
        return
    for at, node in enumerate(nodes):
        if not grids[at].same_grid(widest):
            grids[at] = widest
            set_params(model, node, widest)
            trace.rewrote(node, f"takes the widest grid of '{source.name}'")


def _widest(grids: list[QParams]) -> QParams | str:
    """The finest of the grids that cover all others, or why there is none."""
    if len({(grid.axis, grid.block, grid.scale.shape) for grid in grids}) > 1:
        return "it is quantized both per tensor and per channel or block"
    kinds = {grid.qtype for grid in grids}
    if len(kinds) > 1 and any(kind.floating for kind in kinds):
        return "it is quantized to types whose values differ"
    lows, highs = zip(*(grid.range for grid in grids), strict=True)
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    covering = [g for g in grids if np.all(g.range[0] <= low) and np.all(g.range[1] >= high)]
    if not covering:
        return "none of its quantizers covers the range of all others"
    return min(covering, key=lambda grid: grid.scale.max())


def _merge(
    model: Model, source: gs.Tensor, nodes: list[gs.Node], grids: list[QParams], trace: Trace
) -> None:
    """Replace every node by an earlier one with the same grid whose output it can read."""
    origin = producer(source)
    home = origin.owner if origin is not None else getattr(source, "owner", model.graph)
    # A quantizer in the graph that produces the tensor serves every body; others only their own.
    order = sorted(range(len(nodes)), key=lambda i: nodes[i].owner is not home)
    kept: dict[object, list[gs.Node]] = {}
    for node, grid in ((nodes[i], grids[i].grid_key()) for i in order):
        same = kept.setdefault(grid, [])
        # The one at home comes first, so it is found first.
        seen = next((k for k in same if k.owner is home or k.owner is node.owner), None)
        if seen is not None:
            trace.rewrote(node, f"same grid on '{source.name}' as '{seen.name}'")
            replace(node, by=seen.outputs[0], model=model)
            continue
        if same:
            trace.skip(node, f"the same quantizer of '{source.name}' is in another body")
        elif len(kept) > 1:
            trace.skip(node, f"'{source.name}' has quantizers with different grids")
        same.append(node)
