"""A float model with statistics of its tensors: recipes become canonical models here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import onnx_graphsurgeon as gs

from onnxq.analysis.placement_walk import Place
from onnxq.calibration.even_channels.equalizing import equalize, may_equalize
from onnxq.calibration.even_channels.smoothing import Smoothed, smooth
from onnxq.calibration.flat_sides import without_flat_sides
from onnxq.calibration.observed_range import observed_range
from onnxq.calibration.placing import Placed, Placing
from onnxq.calibration.ranges import KnownRange, RangeTable
from onnxq.calibration.recipe import Recipe
from onnxq.calibration.recorded_grids import Look, RecordedGrid
from onnxq.calibration.rounding.weight_rounding import WeightRounding
from onnxq.calibration.weight_ranges import chosen_method
from onnxq.graph.constants import array
from onnxq.observing.range_methods import Method
from onnxq.observing.statistics import Statistics
from onnxq.observing.tensor_statistics import TensorStatistics, Wanted
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.scheme import QSpec
from onnxq.quant.settings import Settings
from onnxq.running.samples import Feed


class Calibrated:
    """A float model, smoothed where that pays, and what is known of its tensors."""

    def __init__(
        self,
        placing: Placing,
        statistics: Statistics,
        smoothing: Mapping[str, float] | None = None,
        feeds: Sequence[Feed] = (),
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Smooth a copy of the model: as `smoothing` says, or if None, wherever it pays.

        `feeds` are samples for GPTQ.
        """
        self.backend, self.statistics = placing.backend, statistics
        is_plain = smoothing is not None and not smoothing
        self.model = placing.model if is_plain else placing.model.clone()
        # The last one: recipes seldom differ in settings.
        self._placing = placing if is_plain else None
        self._channels = {
            name: each.channels.numbers
            for name, each in statistics.tensors.items()
            if each.channels is not None and each.channels.sum.count
        }
        self.smoothed: list[Smoothed] = []
        scheme = self.backend.scheme
        if not (scheme.activation.logarithmic or scheme.weight.logarithmic):
            self.smoothed = smooth(self.model, self._channels, self.backend, smoothing)
        if may_equalize(scheme):
            self.smoothed += equalize(
                self.model, self._channels, statistics.tensors, smoothing, statistics.samples
            )
        for each in self.smoothed:
            self._channels[each.smoothed] = self._channels[each.tensor].divided(each.factors)
        self._margins = {each.smoothed: each.margin for each in self.smoothed}
        self._observed: dict[tuple[str, QSpec, Method], KnownRange] = {}
        self._rounding = WeightRounding(self.model, feeds, progress)

    @cached_property
    def exponents(self) -> dict[str, float]:
        """The exponent of each tensor that is smoothed, for a recipe."""
        return {each.tensor: each.exponent for each in self.smoothed}

    def placing(self, settings: Settings) -> Placing:
        """The places of quantizers under these settings."""
        if self._placing is None or self._placing.settings != settings:
            self._placing = Placing(self.model, self.backend, settings)
        return self._placing

    def activation_grids(self, recipe: Recipe) -> QParamTable:
        """The quantizers of activations that a recipe makes."""
        placing = self.placing(recipe.settings)
        return placing.activation_grids(self.ranges(placing, Method.parse(recipe.method)))

    def placed(self, recipe: Recipe) -> Placed:
        """The canonical model that a recipe makes."""
        placing = self.placing(recipe.settings)
        averages = {name: each.average for name, each in self._channels.items()}
        ranges = self.ranges(placing, Method.parse(recipe.method))
        rounding = self._rounding.rounded if recipe.rounding == "gptq" else None
        return placing.place(ranges, averages if recipe.bias_correction else None, rounding)

    def ranges(self, placing: Placing, method: Method) -> RangeTable:
        """The range of every observed tensor that is quantized, by its rule or by `method`."""
        table: RangeTable = {}
        for place in placing.places:
            spec, stated = placing.activation_spec(place), placing.method_of(place)
            for tensor in place.tensors:
                if tensor.name in table or array(tensor) is not None:
                    continue
                found = self._range(tensor, place, spec, stated or method)
                if found is not None:
                    table[tensor.name] = found
        return table

    def _range(
        self, tensor: gs.Tensor, place: Place[gs.Node, gs.Tensor], spec: QSpec, method: Method
    ) -> KnownRange | None:
        if tensor.name in self._margins:
            # Smoothing makes the channels' extremes alike: clipping would cut all of them.
            seen, margin = self._channels[tensor.name], self._margins[tensor.name]
            source = f"extremes over {self.statistics.samples} samples, smoothed"
            return KnownRange.of(
                margin * float(seen.low.min()),
                margin * float(seen.high.max()),
                source if margin == 1 else f"{source}, with a margin: {margin:g} x",
            )
        stats = self.statistics.tensors.get(tensor.name)
        if stats is None or not stats.extremes.count:
            return None
        key = (tensor.name, spec, method)  # recipes differ in few of their ranges
        if key not in self._observed:
            self._observed[key] = observed_range(stats, spec, method)
        return without_flat_sides(self._observed[key], tensor, self.model)

    # -- the grids, for a recipe --------------------------------------------------------------

    def recorded(self, recipe: Recipe, placed: Placed) -> tuple[RecordedGrid, ...]:
        """The grids of the canonical model that `recipe` made."""
        placing = self.placing(recipe.settings)
        rows = {row.tensor: row for row in placed.table}
        found: dict[str, RecordedGrid] = {}
        for place in placing.places:
            row, spec = rows.get(place.tensors[0].name), placing.activation_spec(place)
            method = placing.method_of(place) or Method.parse(recipe.method)
            look = self._look(place, method)
            if row is not None and look is not None and spec.range == (row.lo, row.hi):
                found.setdefault(row.tensor, RecordedGrid.of(row, spec, str(method), look))
        for node, weight in placing.weights:
            row, spec = rows.get(weight.name), placing.weight_spec(node)
            values = array(weight)
            if row is None or values is None or row.block or spec.range != (row.lo, row.hi):
                continue
            chosen = chosen_method(spec, placing.weight_method_of(node))
            look = Look.of_weight(values, row.axis)
            found.setdefault(row.tensor, RecordedGrid.of(row, spec, chosen, look))
        return tuple(found.values())

    def _look(self, place: Place[gs.Node, gs.Tensor], method: Method) -> Look | None:
        """What all tensors of a quantizer look like together; None: part was not observed."""
        whole = TensorStatistics(Wanted(distribution=False))
        for tensor in place.tensors:
            stats = self.statistics.tensors.get(tensor.name)
            if tensor.name in self._margins or stats is None or stats.is_empty:
                return None
            whole.merge(stats)
        return Look.of_activation(whole, method)


__all__ = ["Calibrated"]
