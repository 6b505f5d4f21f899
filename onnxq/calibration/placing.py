"""The engine: a float graph, the placement of a target and ranges give a canonical graph.

It serves whatever lacks the quantizers of its target. Only the source of the ranges differs: data,
the quantizers a model came with, a side file, or the values of weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.before_logarithms import before_logarithms
from onnxq.analysis.placement_walk import Place
from onnxq.analysis.quantizer_places import QuantizerPlaces
from onnxq.backend import Backend
from onnxq.calibration.bias_correction import correct_biases
from onnxq.calibration.range_methods import Method
from onnxq.calibration.ranges import KnownRange, RangeTable, united
from onnxq.calibration.weight_ranges import weight_range
from onnxq.edit import describe
from onnxq.errors import OptionError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.op_kind import kind_of, weight_of
from onnxq.operators.traits import WEIGHTED
from onnxq.operators.weight_axis import weight_axis
from onnxq.pipeline import Pipeline
from onnxq.quant.grid_of_range import grid_of_range
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Array, Role
from onnxq.quant.qtypes import QTYPES
from onnxq.quant.scheme import QSpec
from onnxq.quant.settings import LayerSettings, Settings
from passes.apply_qparams import ApplyQParams

_PLAIN = LayerSettings()


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

    def _stays_float(self, node: gs.Node) -> bool:
        if self.chosen.get(id(node), _PLAIN).float:
            return True
        return bool(self.keep_float) and any(t.name in self.keep_float for t in node.outputs)

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
        bits = [b for b in (self._activation_bits(op) for op in place.asked_by) if b is not None]
        symmetric = [self.chosen.get(id(op), _PLAIN).symmetric for op in place.asked_by]
        if bits and not spec.logarithmic:
            spec = self._with_bits(spec, max(bits), "activations")
        if any(symmetric) and not spec.symmetric:
            spec = _signed(replace(spec, symmetric=True), self.backend.name)
        return spec.unsigned() if place.unsigned else spec

    def _activation_bits(self, op: gs.Node) -> int | None:
        stated = self.chosen.get(id(op), _PLAIN).activation_bits
        if stated is None and id(op) in self._boundary:
            return self.backend.placement.boundary_bits
        return stated

    def method_of(self, place: Place[gs.Node, gs.Tensor]) -> Method | None:
        """The method that a rule states for a place."""
        stated = (self.chosen.get(id(op), _PLAIN).method for op in place.asked_by)
        found = next((text for text in stated if text is not None), None)
        return None if found is None else Method.parse(found)

    def weight_spec(self, node: gs.Node) -> QSpec:
        """The rules for the weight of a layer."""
        spec, chosen = self.backend.scheme.weight.trained(), self.chosen.get(id(node), _PLAIN)
        bits = chosen.weight_bits
        if bits is None and id(node) in self._boundary:
            bits = self.backend.placement.boundary_bits
        if bits is not None and not spec.logarithmic:
            spec = self._with_bits(spec, bits, "weights")
        if chosen.per_channel is not None:
            if chosen.per_channel and not spec.per_channel:
                raise OptionError(
                    f"{self.backend.name} has one scale per tensor for weights",
                    fix="leave per_channel out",
                )
            spec = replace(spec, per_channel=chosen.per_channel)
        return spec

    def _with_bits(self, spec: QSpec, bits: int, what: str) -> QSpec:
        changed = spec.with_bits(bits)
        if changed.types[0] not in spec.types and bits > min(QTYPES[t].bits for t in spec.types):
            raise OptionError(
                f"{self.backend.name} has no {what} of {bits} bits ({', '.join(spec.types)})",
                fix="choose other bits, or 'float' for these layers",
            )
        return changed

    # -- the table ----------------------------------------------------------------------------

    def place(
        self,
        ranges: RangeTable,
        averages: Mapping[str, Array] | None = None,
    ) -> Placed:
        """Put the quantizers in; tensors without a range stay float, and are noted.

        With the `averages` of tensors per channel, biases make up for rounded weights.
        """
        rows = _Rows()
        rows.notes += [
            f"{describe(node)} stays float: a logarithm shows its small values"
            for node in self.before_logs
        ]
        for place in self.places:
            self._add_place(place, ranges, rows)
        for node, weight in self.weights:
            if weight.name not in rows.sources:
                self._add_weight(node, weight, rows)
        model = self.model.clone()
        corrected = correct_biases(model, rows.table, averages) if averages else []
        model.qparams = rows.table
        made = Pipeline(ApplyQParams()).run(model, in_place=True).model
        return Placed(made, rows.sources, rows.rules, rows.notes, corrected)

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
        if not np.isfinite(values).all():
            rows.notes.append(
                f"'{weight.name}' stays float: it contains values that are not finite"
            )
            return
        spec = self.weight_spec(node)
        layout = weight_axis(node, values.ndim)
        axis = layout.axis if layout is not None and spec.per_channel else None
        method = self.chosen.get(id(node), _PLAIN).weight_method
        low, high, source = weight_range(values, axis, spec, method)
        rule = f"weight of {describe(node)}"
        rows.add(weight.name, KnownRange(low, high, source), spec, axis, Role.WEIGHT, rule)

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

    def add(
        self, name: str, known: KnownRange, spec: QSpec, axis: int | None, role: Role, rule: str
    ) -> None:
        self.sources[name], self.rules[name] = known.source, rule
        if spec.logarithmic:
            reach = max(float(np.max(-known.low)), float(np.max(known.high)), 1e-4)
            self.table.logarithmic.append(LogParams(name, reach, role))
        else:
            grid = grid_of_range(name, known.low, known.high, spec, axis=axis, role=role)
            self.table.add(grid)


def _signed(spec: QSpec, backend: str) -> QSpec:
    """The same rules with a signed type: zero point 0 of an unsigned one clips all negatives."""
    if spec.qtype.signed:
        return spec
    signed = spec.qtype.name.removeprefix("u")
    if signed not in spec.types:
        raise OptionError(
            f"{backend} has no signed activations, so they cannot be symmetric",
            fix="leave 'symmetric' out",
        )
    others = tuple(t for t in spec.types if t != signed)
    return replace(spec, types=(signed, *others), lo=None, hi=None)


def names_of(node: gs.Node) -> tuple[str, ...]:
    """The names a rule can select a node by: its own, those of its outputs, and as a path."""
    name = str(node.name)
    path = name.strip("/").replace("/", ".")
    weight = weight_of(node)
    stem = "" if weight is None else weight.name.removesuffix(".smoothed")
    module = stem.removesuffix(".weight")
    found = (name, *(t.name for t in node.outputs), path, path.rpartition(".")[0], module)
    return tuple(dict.fromkeys(n for n in found if n))


def kinds_of(node: gs.Node) -> tuple[str, ...]:
    """The kinds a rule can select a node by: its operator and its kind."""
    return tuple(dict.fromkeys(k for k in (str(node.op), kind_of(node)) if k))


__all__ = ["Placed", "Placing", "kinds_of", "names_of"]
