"""Rounds the weights of few bits in a model by GPTQ, on samples.

The inputs of a layer are those of the float model. The products that GPTQ needs are squares of
the number of inputs, so layers are taken in batches, each with a run over the samples of its own.
Results are kept: recipes that differ elsewhere have the same grids of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.calibration.rounding.gptq import Grid, gptq_codes
from onnxq.calibration.rounding.layer_inputs import LayerInputs, as_matrices, as_weight
from onnxq.edit import users
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.op_kind import weight_of
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.running.samples import Feed
from onnxq.running.sessions import observing

SAMPLES = 32
"""Samples that the products come from."""
ROWS = 32768
"""Most rows of inputs of a layer over all samples: eight for each of the most inputs it has."""
MEMORY = 256 << 20
"""Most bytes of products at a time."""


def has_few_bits(row: QParams) -> bool:
    """Whether a quantizer has fewer than 8 bits: with more, rounding to nearest is as good."""
    assert row.lo is not None and row.hi is not None
    return not row.qtype.floating and (row.hi - row.lo).bit_length() < 8


@dataclass(frozen=True)
class _Task:
    """A weight to be rounded."""

    row: QParams
    layer: gs.Node
    weight: Array
    inputs: tuple[LayerInputs, ...]
    """Of every layer that reads the weight."""

    @property
    def key(self) -> Hashable:
        return self.row.tensor, self.row.grid_key()


class WeightRounding:
    """GPTQ for the weights of one float model."""

    def __init__(
        self,
        model: Model,
        feeds: Sequence[Feed],
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._model, self._feeds, self._progress = model, list(feeds)[:SAMPLES], progress
        self._done: dict[Hashable, Array] = {}
        self._weights: dict[str, gs.Tensor] = {}
        for node in model.nodes():
            weight = weight_of(node)
            if weight is not None:
                self._weights.setdefault(weight.name, weight)

    def rounded(self, table: QParamTable) -> tuple[dict[str, Array], list[str]]:
        """The rounded values of weights of few bits, by name, and notes on those left out.

        The values lie on the grids of `table`: its quantizers do not change them.
        """
        found: dict[str, Array] = {}
        tasks, reasons = [], dict[str, list[str]]()
        for row in table.of(Role.WEIGHT):
            if row.tensor not in self._weights or not has_few_bits(row):
                continue
            task = self._task(row)
            if isinstance(task, str):
                reasons.setdefault(task, []).append(row.tensor)
            else:
                tasks.append(task)
        new = [task for task in tasks if task.key not in self._done]
        for batch in _batches(new):
            self._progress(f"rounding the weights of {len(new)} layers by GPTQ")
            products = self._products({each for task in batch for each in task.inputs})
            for task in batch:
                self._done[task.key] = _rounded(task, products)
        for task in tasks:
            found[task.row.tensor] = self._done[task.key]
        return found, [_note(names, why) for why, names in reasons.items()]

    def _task(self, row: QParams) -> _Task | str:
        """What is to be done for a weight, or why it cannot be."""
        tensor = self._weights[row.tensor]
        weight = array(tensor)
        if weight is None:
            return "its values are computed"
        inputs, layers = [], []
        for layer, index in users(tensor):
            if index != 1 or weight_of(layer) is not tensor:
                return "something other than a layer reads it as well"
            if layer.owner is not self._model.graph:
                return "its layer is in the body of another node"
            if array(layer.inputs[0]) is not None:
                return "its layer reads a constant"
            made = LayerInputs.of(layer, weight.shape)
            if isinstance(made, str):
                return made
            inputs.append(made)
            layers.append(layer)
        if len({(n.op, n.attrs.get("transB", 0), n.attrs.get("group", 1)) for n in layers}) != 1:
            return "several layers read it in different ways"
        return _Task(row, layers[0], weight, tuple(inputs))

    def _products(self, wanted: set[LayerInputs]) -> dict[LayerInputs, Array]:
        given = {t.name for t in self._model.graph.inputs}
        taps = sorted({each.tensor for each in wanted} - given)
        found = {w: np.zeros((w.groups, w.inputs, w.inputs)) for w in wanted}
        rows = max(1, ROWS // len(self._feeds))
        running = observing(self._model, taps=taps) if taps else None
        for feed in self._feeds:
            values = {} if running is None else running.run(feed, only=taps)
            for each in wanted:
                value = values[each.tensor] if each.tensor in values else feed[each.tensor]
                found[each] += each.products(value, rows)
        return found


def _batches(tasks: Sequence[_Task]) -> Iterator[list[_Task]]:
    """Tasks whose products fit into memory together; those of the same inputs share them."""
    batch: list[_Task] = []
    held: set[LayerInputs] = set()
    for task in tasks:
        more = held.union(task.inputs)
        if batch and sum(each.bytes for each in more) > MEMORY:
            yield batch
            batch, more = [], set(task.inputs)
        batch.append(task)
        held = more
    if batch:
        yield batch


def _rounded(task: _Task, products: Mapping[LayerInputs, Array]) -> Array:
    row, weight, layer = task.row, task.weight, task.layer
    scale, zero = (np.broadcast_to(each, weight.shape) for each in row.broadcast(weight.shape))
    assert row.lo is not None and row.hi is not None
    scale, zero = (as_matrices(layer, each.astype(np.float64)) for each in (scale, zero))
    grid = Grid(scale, zero, row.lo, row.hi)
    total = np.sum([products[each] for each in task.inputs], axis=0)
    codes = gptq_codes(as_matrices(layer, weight), grid, total)
    return row.dequantize(as_weight(layer, codes, weight.shape)).astype(weight.dtype, copy=False)


def _note(names: Sequence[str], why: str) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"'{names[0]}'{more} rounded to the nearest codes: {why}"


__all__ = ["SAMPLES", "WeightRounding", "has_few_bits"]
