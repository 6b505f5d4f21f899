"""The engine: a float graph, the placement of a target and ranges give a canonical graph.

It serves whatever lacks the quantizers of its target. Only the source of the ranges differs: data,
the quantizers a model came with, a side file, or the values of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.before_logarithms import before_logarithms
from onnxq.analysis.placement_walk import Place
from onnxq.analysis.quantizer_places import QuantizerPlaces
from onnxq.arrays.pieces import cut
from onnxq.backend import Backend
from onnxq.calibration.bias_correction import correct_biases
from onnxq.calibration.ranges import KnownRange, RangeTable, united
from onnxq.calibration.room_for_biases import with_room
from onnxq.calibration.weight_ranges import block_range, weight_range
from onnxq.canonical.quantized_weights import quantized_weights
from onnxq.edit import describe, new_values, set_input
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.observing.range_methods import Method
from onnxq.operators.op_kind import kind_of, weight_of
from onnxq.operators.traits import WEIGHTED
from onnxq.operators.weight_axis import BIAS_INPUT, weight_axis
from onnxq.pipeline import Pipeline
from onnxq.quant import layer_spec
from onnxq.quant.bias_room import MOST_BITS
from onnxq.quant.grid_of_range import grid_of_range
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Array, Role
from onnxq.quant.scheme import QSpec
from onnxq.quant.settings import LayerSettings, Settings, joined
from passes.apply_qparams import ApplyQParams

_PLAIN = LayerSettings()
_SHOWN_BY_LOG = "a logarithm shows its small values"

Rounding = Callable[[QParamTable], tuple[Mapping[str, Array], list[str]]]
"""From the grids of weights to values on them, by name, and notes: another choice than nearest."""


@dataclass(frozen=True)
class Placed:
    """The result of placing."""

    model: Model
    """The canonical graph."""
    sources: dict[str, str]
    """Where the range of each quantized tensor comes from."""
    rules: dict[str, str]
    """Why each tensor is quantized."""
    notes: list[str]
    """Tensors that stay float although the placement wants them quantized."""
    corrected: list[str] = field(default_factory=list)
    """Outputs of layers whose bias makes up for rounded weights."""
    rounded: list[str] = field(default_factory=list)
    """Weights that are not rounded to their nearest codes."""
    table: QParamTable = field(default_factory=QParamTable)
    """The grids."""


@dataclass
class Placing:
    """Where quantizers go in a float graph."""

    model: Model
    backend: Backend
    settings: Settings = field(default_factory=Settings)
    keep_float: Collection[str] = ()
    """Outputs of further layers that stay float."""

    def __post_init__(self) -> None:
        """Find the places."""
        nodes = self.model.nodes()
        self.chosen: dict[int, LayerSettings] = self.settings.of_layers(
            {id(node): (names_of(node), kinds_of(node)) for node in nodes}
        )
        spectra = [n for n in before_logarithms(self.model) if id(n) not in self.chosen]
        self.before_logs = [n for n in spectra if weight_of(n) is not None]
        left = [*(node for node in nodes if self._stays_float(node)), *spectra]
        self.walk = QuantizerPlaces(self.model, self.backend.placement, left)
        self.places = self.walk.activations()
        self.weights = list(self.walk.weights())
        self._boundary = self._boundary_layers()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is quantized: all layers stay float, or the target has none of them."""
        return not self.places and not self.weights

    def _stays_float(self, node: gs.Node) -> bool:
        if self.chosen.get(id(node), _PLAIN).float:
            return True
        return bool(self.keep_float) and any(t.name in self.keep_float for t in node.outputs)

    def float_layers(self) -> dict[str, str]:
        """Why operators that the target could run in integers stay float, by first output."""
        found = {
            node.outputs[0].name: "the recipe keeps it in float"
            for node in self.model.nodes()
            if node.outputs and self._stays_float(node)
        }
        return found | {n.outputs[0].name: _SHOWN_BY_LOG for n in self.before_logs}

    def _boundary_layers(self) -> set[int]:
        """The first and last layers, for targets that treat them differently."""
        if self.backend.placement.boundary_bits is None:
            return set()
        layers = [node for node, _ in self.weights]
        firsts = {
            id(n)
            for n in layers
            if any(self.walk.is_input(s) for s in self.walk.sources(n.inputs[0]))
        }
        return firsts | self._last_layers({id(n) for n in layers})

    def _last_layers(self, layers: set[int]) -> set[int]:
        """The layers after which there is no other."""
        before_another: set[int] = set()
        for node in reversed(self.model.nodes()):
            users = [id(user) for tensor in node.outputs for user in tensor.outputs]
            if any(user in layers or user in before_another for user in users):
                before_another.add(id(node))
        return layers - before_another

    # -- what each quantizer is ---------------------------------------------------------------

    def activation_spec(self, place: Place[gs.Node, gs.Tensor]) -> QSpec:
        """The rules for the quantizer of a place."""
        spec = self.backend.scheme.activation.trained()
        spec = layer_spec.activation_spec(spec, self._asked(place), self.backend.name)
        return spec.unsigned() if place.unsigned else spec

    def method_of(self, place: Place[gs.Node, gs.Tensor]) -> Method | None:
        """The method that a rule states for a place."""
        found = self._asked(place).method
        return None if found is None else Method.parse(found)

    def weight_spec(self, node: gs.Node) -> QSpec:
        """The rules for the weight of a layer."""
        spec = self.backend.scheme.weight.trained()
        return layer_spec.weight_spec(spec, self._settings(node), self.backend.name)

    def weight_method_of(self, node: gs.Node) -> str | None:
        """The method that a rule states for the weight of a layer."""
        return self.chosen.get(id(node), _PLAIN).weight_method

    @property
    def has_few_bits(self) -> bool:
        """Whether a weight has fewer than 8 bits, so that it matters how it is rounded."""
        specs = (self.weight_spec(node) for node, _ in self.weights)
        return any(spec.bits < 8 and not spec.logarithmic for spec in specs)

    def _asked(self, place: Place[gs.Node, gs.Tensor]) -> LayerSettings:
        return joined(map(self._settings, place.asked_by))

    def _settings(self, node: gs.Node) -> LayerSettings:
        """What the rules say about a layer, with the bits of first and last layers."""
        chosen = self.chosen.get(id(node), _PLAIN)
        if id(node) not in self._boundary:
            return chosen
        return chosen.with_default_bits(self.backend.placement.boundary_bits)

    # -- the table ----------------------------------------------------------------------------

    def place(
        self,
        ranges: RangeTable,
        averages: Mapping[str, Array] | None = None,
        rounding: Rounding | None = None,
    ) -> Placed:
        """Put the quantizers in; tensors without a range stay float, and are noted.

        With the `averages` of tensors per channel, biases make up for rounded weights, except
        those that `rounding` rounds: it has made up for errors already.
        """
        rows = self._activation_rows(ranges)
        for node, weight in self.weights:
            if weight.name not in rows.sources:
                self._add_weight(node, weight, rows)
        model = self.model.clone()
        rounded, notes = rounding(rows.table) if rounding else ({}, [])
        left = QParamTable([row for row in rows.table if row.tensor not in rounded])
        corrected = correct_biases(model, left, averages) if averages else []
        model.qparams = rows.table
        made = Pipeline(ApplyQParams()).run(model, in_place=True).model
        for node, _, _ in quantized_weights(made):
            weight = node.inputs[0]
            if weight.name in rounded:
                set_input(node, 0, new_values(made, weight, rounded[weight.name], node))
        made.sweep()
        rows.notes += notes
        return Placed(
            made, rows.sources, rows.rules, rows.notes, corrected, list(rounded), rows.table
        )

    def activation_grids(self, ranges: RangeTable) -> QParamTable:
        """The quantizers of activations alone."""
        return self._activation_rows(ranges).table

    def _activation_rows(self, ranges: RangeTable) -> _Rows:
        rows = _Rows()
        rows.notes += [
            f"{describe(node)} stays float: {_SHOWN_BY_LOG}" for node in self.before_logs
        ]
        for place in self.places:
            self._add_place(place, ranges, rows)
        return rows

    def _add_place(self, place: Place[gs.Node, gs.Tensor], ranges: RangeTable, rows: _Rows) -> None:
        known = {t.name: _own_range(t) or ranges.get(t.name) for t in place.tensors}
        found = [each for each in known.values() if each is not None]
        missing = [name for name, each in known.items() if each is None]
        if missing:
            rows.notes.append(f"'{missing[0]}' stays float: no range is known ({place.rule})")
        if not found or (missing and len(place.tensors) > 1):
            return
        whole, spec = united(found), self.activation_spec(place)
        for tensor in place.tensors:
            if tensor.name not in rows.sources:
                rows.add(tensor.name, whole, spec, None, Role.ACTIVATION, place.rule)

    def _add_weight(self, node: gs.Node, weight: gs.Tensor, rows: _Rows) -> None:
        values = array(weight)
        if values is None or not np.issubdtype(values.dtype, np.floating) or not values.size:
            return
        if not all(np.isfinite(part).all() for part in cut(values)):
            rows.notes.append(
                f"'{weight.name}' stays float: it contains values that are not finite"
            )
            return
        spec = self.weight_spec(node)
        layout = weight_axis(node, values.ndim)
        axis = layout.axis if layout is not None and spec.per_channel else None
        method = self.weight_method_of(node)
        block = spec.block if axis is not None and values.ndim == 2 else 0
        if axis is not None and block:
            axis = 1 - axis  # blocks run along the sums
            low, high, source = block_range(values, axis, spec, method)
        else:
            low, high, source = weight_range(values, axis, spec, method)
        known, rule = KnownRange(low, high, source), f"weight of {describe(node)}"
        at = BIAS_INPUT.get(str(node.op), len(node.inputs))
        bias = array(node.inputs[at]) if at < len(node.inputs) and not block else None
        sources = self.walk.sources(node.inputs[0])
        steps = [rows.steps[source.name] for source in sources if source.name in rows.steps]
        if bias is not None and steps:
            known = with_room(known, spec, bias, min(steps))
        rows.add(weight.name, known, spec, axis, Role.WEIGHT, rule, block)

    def wanted_layers(self) -> Iterator[tuple[gs.Node, gs.Tensor]]:
        """The layers with quantized weights, and what they read."""
        for node, _ in self.weights:
            if kind_of(node) in WEIGHTED and array(node.inputs[0]) is None:
                yield node, node.inputs[0]


def _own_range(tensor: gs.Tensor) -> KnownRange | None:
    values = array(tensor)
    if values is None or not values.size:
        return None
    return KnownRange.of(float(values.min()), float(values.max()), "its own values")


@dataclass
class _Rows:
    """The quantizers to insert, with where their ranges come from and why they are there."""

    table: QParamTable = field(default_factory=QParamTable)
    sources: dict[str, str] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    """The steps of activations that integer kernels multiply."""

    def add(
        self,
        name: str,
        known: KnownRange,
        spec: QSpec,
        axis: int | None,
        role: Role,
        rule: str,
        block: int = 0,
    ) -> None:
        self.sources[name], self.rules[name] = known.source, rule
        if spec.logarithmic:
            reach = max(float(np.max(-known.low)), float(np.max(known.high)), 1e-4)
            self.table.logarithmic.append(LogParams(name, reach, role))
        else:
            grid = grid_of_range(
                name, known.low, known.high, spec, axis=axis, block=block, role=role
            )
            self.table.add(grid)
            if role is Role.ACTIVATION and spec.bits <= MOST_BITS:
                self.steps[name] = float(grid.scale.min())


def names_of(node: gs.Node) -> tuple[str, ...]:
    """The names a rule can select a node by: its own, those of its outputs, and as a path."""
    name = str(node.name)
    path = name.strip("/").replace("/", ".")
    weight = weight_of(node)
    module = "" if weight is None else weight_stem(weight).removesuffix(".weight")
    found = (name, *(t.name for t in node.outputs), path, path.rpartition(".")[0], module)
    return tuple(dict.fromkeys(n for n in found if n))


def weight_stem(weight: gs.Tensor) -> str:
    """The name that a weight had in the source, before its layer was folded or smoothed."""
    return str(weight.name).removesuffix(".smoothed").removesuffix(".folded")


def kinds_of(node: gs.Node) -> tuple[str, ...]:
    """The kinds a rule can select a node by: its operator and its kind."""
    return tuple(dict.fromkeys(k for k in (str(node.op), kind_of(node)) if k))


__all__ = ["Placed", "Placing", "Rounding", "kinds_of", "names_of", "weight_stem"]
