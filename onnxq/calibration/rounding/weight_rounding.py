"""Rounds weights in a model by GPTQ, on samples.

Those of few bits, where it decides, and those of 8 bits in small windows of convolutions: there it
is cheap, and neighbours in a picture are so much alike that it halves the noise of rounding.

The inputs of a layer are those of the float model. The products that GPTQ needs are squares of
the number of inputs, so layers are taken in batches, each with a run over the samples of its own.
Results are kept: recipes that differ elsewhere have the same grids of weights.
"""

from __future__ import annotations

import math
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
SMALL = 640
"""Most inputs of a window of 8-bit weights that is rounded."""
SMALL_SAMPLES = 4
"""Samples for these windows, with 8 rows for each input in all."""
MEMORY = 256 << 20
"""Most bytes of products at a time."""


def has_few_bits(row: QParams) -> bool:
    """Whether a quantizer has fewer than 8 bits: with more, rounding to nearest is as good."""
    assert row.lo is not None and row.hi is not None
    return not row.qtype.floating and (row.hi - row.lo).bit_length() < 8


def is_small_window(layer: gs.Node, shape: Sequence[int]) -> bool:
    """Whether a layer sums over few inputs, neighbours among them."""
    taps = math.prod(shape[2:])
    return layer.op == "Conv" and taps > 1 and shape[1] * taps <= SMALL


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
        """The rounded values of weights, by name, and notes on those of few bits left out.

        The values lie on the grids of `table`: its quantizers do not change them.
        """
        found: dict[str, Array] = {}
        tasks, reasons = [], dict[str, list[str]]()
        for row in table.of(Role.WEIGHT):
            if row.tensor not in self._weights or row.qtype.floating:
                continue
            few, task = has_few_bits(row), self._task(row)
            if isinstance(task, str):
                if few:
                    reasons.setdefault(task, []).append(row.tensor)
            elif few or (row.qtype.bits == 8 and is_small_window(task.layer, task.weight.shape)):
                tasks.append(task)
        new = [task for task in tasks if task.key not in self._done]
        for few in (True, False):
            for batch in _batches([task for task in new if has_few_bits(task.row) == few]):
                self._progress(f"rounding the weights of {len(new)} layers by GPTQ")
                inputs = {each for task in batch for each in task.inputs}
                feeds = self._feeds if few else self._feeds[:SMALL_SAMPLES]
                products = self._products(inputs, feeds, few)
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

    def _products(
        self, wanted: set[LayerInputs], feeds: Sequence[Feed], few: bool
    ) -> dict[LayerInputs, Array]:
        given = {t.name for t in self._model.graph.inputs}
        taps = sorted({each.tensor for each in wanted} - given)
        found = {w: np.zeros((w.groups, w.inputs, w.inputs)) for w in wanted}
        running = observing(self._model, taps=taps) if taps else None
        for feed in feeds:
            values = {} if running is None else running.run(feed, only=taps)
            for each in wanted:
                value = values[each.tensor] if each.tensor in values else feed[each.tensor]
                rows = ROWS if few else 8 * each.inputs
                found[each] += each.products(value, max(1, rows // len(feeds)))
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


__all__ = ["SAMPLES", "WeightRounding", "has_few_bits", "is_small_window"]
