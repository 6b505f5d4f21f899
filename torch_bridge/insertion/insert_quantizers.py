"""Make the quantizers of a model, and insert those of activations into its graph."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import fx, nn

from onnxq.backend import Backend
from onnxq.calibration.recorded_grids import GridRecord
from onnxq.errors import OnnxqError, OptionError, near_matches
from onnxq.quant import layer_spec
from onnxq.quant.scheme import QSpec
from onnxq.quant.settings import LayerSettings
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.capture.mode_differences import OWNER
from torch_bridge.capture.report import Report, Row
from torch_bridge.capture.tracing import fresh_name, inside
from torch_bridge.capture.value_types import FLOAT, MADE_ZERO, SHAPE
from torch_bridge.fake_quant import FakeQuantize, algorithm
from torch_bridge.insertion.layer_choices import LayerChoices
from torch_bridge.insertion.op_kinds import module_kind
from torch_bridge.insertion.overrides import Override
from torch_bridge.insertion.rules import Rules, Spot
from torch_bridge.nn.attention import ActivationProduct
from torch_bridge.observers import Observer
from torch_bridge.observers.by_method import ByMethod, WeightByMethod

M = TypeVar("M", bound=nn.Module)

READS_SHAPE = frozenset({"size", "dim", "shape", "ndim", "dtype", "device", "numel", "ndimension"})
"""Names of methods and attributes that do not read values."""

LEARN_INPUTS_BELOW = 8
"""With fewer bits than this the scale of a network's input learns.

Otherwise the range of the data is as good, devices that fill the input keep theirs, and the
gradient of the whole input, which that one number needs, is not computed at all. A scale that an
observer gives only as a start (LSQ's spreads the codes over many times the range) always learns.
"""


_PLAIN = LayerSettings()
_ZEROS = frozenset({torch.zeros_like, torch.zeros, "new_zeros"})
"""What makes zeros, such as the first state of a loop: any range holds them.

The same holds for results that depend on sizes alone, such as the difference of two grids.
"""


@dataclass(frozen=True)
class Watch:
    """An observer that chooses ranges by a method of `onnxq quantize`."""

    kind: type[ByMethod | WeightByMethod]
    options: Mapping[str, Any]

    @staticmethod
    def instead_of(how: Override) -> Override:
        """The changes without their observer; it gives ranges to keep, as the extremes are."""
        return replace(how, observer="minmax", observer_options={})


@dataclass(frozen=True)
class Maker:
    """Makes quantizers by a backend's scheme and a user's changes to it."""

    backend: Backend
    weight: Override = field(default_factory=Override)
    activation: Override = field(default_factory=Override)
    method: str | None = None
    """How ranges are chosen by default, as `onnxq quantize` does; None: by the scheme's observers.
    """
    record: GridRecord = field(default_factory=GridRecord)
    """The grids of the recipe that the method is from."""

    def for_weight(
        self, axis: int | None, name: str, chosen: LayerSettings = _PLAIN
    ) -> FakeQuantize:
        """The quantizer of a weight with output channels along `axis`; None if it has none."""
        how = self.weight.after(chosen, weights=True)
        if axis is None and (how.per_channel or chosen.per_channel):
            raise OptionError(
                f"'{name}' has no output channels (an Embedding's weight is a table), so it cannot "
                "have one scale per channel",
                fix=f"exclude '{name.removesuffix('.weight')}', or leave per_channel out: layers "
                "that have channels then follow the backend's scheme",
            )
        by: Watch | None = None
        if chosen.weight_observer is None and (
            chosen.weight_method or (self.method and how.observer is None)
        ):
            by = Watch(WeightByMethod, {"method": chosen.weight_method})
        backend, changes = self.backend, how if by is None else by.instead_of(how)
        with _about(name):
            spec = layer_spec.weight_spec(backend.scheme.weight.trained(), chosen, backend.name)
            spec = changes.applied(spec, "weights", backend.name)
            return self._made(spec, how, axis, name, by, parameter=True)

    def for_bias(self, name: str) -> FakeQuantize | None:
        """The quantizer of a bias; None if biases are trained in float."""
        spec = self.backend.scheme.bias
        if spec is None or spec.bits > 16:  # 32-bit biases are made when the model is converted
            return None
        return self._made(spec.trained(), Override(), None, name, parameter=True)

    def for_activation(
        self,
        name: str,
        *,
        unsigned: bool = False,
        chosen: LayerSettings = _PLAIN,
        rows: int | None = None,
    ) -> FakeQuantize:
        """The quantizer of an activation; `rows` is the axis of a Softmax that reads it."""
        how = self.activation.after(chosen, weights=False)
        method = chosen.method or (self.method if how.observer is None else None)
        by: Watch | None = None
        if chosen.activation_observer is None and method is not None:
            by = Watch(ByMethod, {"method": method, "rows": rows})
        backend, changes = self.backend, how if by is None else by.instead_of(how)
        given = backend.scheme.activation.trained()
        with _about(name):
            spec = layer_spec.activation_spec(given, chosen, backend.name)
            spec = changes.applied(spec, "activations", backend.name)
            if unsigned and spec.symmetric:
                spec = spec.unsigned()
            return self._made(spec, how, None, name, by)

    def _made(
        self,
        spec: QSpec,
        how: Override,
        axis: int | None,
        name: str,
        by: Watch | None = None,
        *,
        parameter: bool = False,
    ) -> FakeQuantize:
        what = QuantizerSpec.of(replace(spec, train_symmetric=None), axis, parameter=parameter)
        quantizing = algorithm(spec.algorithm)
        if quantizing.weights_only and not parameter:
            raise OptionError(
                f"'{spec.algorithm}' is an algorithm for weights: activations differ from batch to "
                "batch",
                fix=f"give it as weight='{spec.algorithm}', and activations 'lsq' or 'pact'",
            )
        watching = how.observer_class(spec)
        _check_options(quantizing, spec.algorithm, how.options, watching)
        if by is None:
            called = watching.__name__ if isinstance(how.observer, type) else spec.observer
            _check_options(watching, called, how.observer_options)
            with _making("observer", called, "(self, spec, *, ...)", "spec"):
                watch = _initialised(watching(what, **how.observer_options))
        else:
            logarithmic = spec.logarithmic
            watch = by.kind(what, logarithmic=logarithmic, record=self.record, **by.options)
        takes, given = '(self, spec, observer, name="", *, ...)', "spec, observer, name"
        with _making("algorithm", spec.algorithm, takes, given):
            return _initialised(quantizing(what, watch, name=name, **how.options))


@contextlib.contextmanager
def _about(name: str) -> Iterator[None]:
    """Errors say which tensor they are about: rules differ from layer to layer."""
    try:
        yield
    except OptionError as error:
        error.add_note(f"in the quantizer of '{name}'")
        raise


@contextlib.contextmanager
def _making(what: str, called: str, takes: str, given: str) -> Iterator[None]:
    """Errors of a constructor say whose it is: its code and its options are the user's."""
    try:
        yield
    except OnnxqError:
        raise
    except Exception as error:
        raise OptionError(
            f"the {what} '{called}' cannot be made: {type(error).__name__}: {error}",
            fix=f"check the types of its options. If it is your own: its __init__ takes {takes} "
            f"and calls super().__init__({given}) first",
        ) from error


def _initialised(made: M) -> M:
    """What a constructor made, if that of its base ran."""
    if not isinstance(vars(made).get("spec"), QuantizerSpec):
        raise TypeError("its __init__ does not call super().__init__")
    return made


def _check_options(
    kind: type[nn.Module],
    name: str,
    options: Mapping[str, Any],
    watching: type[Observer] | None = None,
) -> None:
    known = _options_of(kind)
    for option in options:
        if option in known:
            continue
        if option in inspect.signature(kind).parameters:
            fix = (
                f"write a * before '{option}' in __init__ of {kind.__name__}: options are "
                "keyword-only arguments"
            )
        elif watching is not None and option in _options_of(watching):
            given = {option: options[option]}
            fix = f'it is one of the observer {watching.__name__}: "observer_options": {given}'
        else:
            fix = near_matches(option, known)
        raise OptionError(f"'{name}' has no option '{option}'", fix=fix)


def _options_of(kind: type[nn.Module]) -> list[str]:
    accepted = inspect.signature(kind).parameters.values()
    return [p.name for p in accepted if p.kind is p.KEYWORD_ONLY]


def insert_activation_quantizers(
    graph_module: fx.GraphModule, rules: Rules, spots: Iterable[Spot], maker: Maker
) -> None:
    """Put a quantizer after the producers of each spot."""
    of_values = _of_values(graph_module.graph)
    for spot in spots:
        _insert(graph_module, spot, maker, rules, of_values)
    graph_module.graph.lint()
    graph_module.recompile()


def _of_values(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that depend on values of inputs, not on their sizes alone, as a grid may."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        reads = not _reads_shape(node) and not found.isdisjoint(node.all_input_nodes)
        if node.op == "placeholder" or reads:
            found.add(node)
    return found


def _insert(
    graph_module: fx.GraphModule, spot: Spot, maker: Maker, rules: Rules, of_values: set[fx.Node]
) -> None:
    first = spot.producers[0]
    quantizer = maker.for_activation(
        _tensor_name(first), unsigned=spot.unsigned, chosen=spot.chosen, rows=spot.rows
    )
    quantizer.may_be_zero = all(
        producer.target in _ZEROS
        or producer not in of_values
        or producer.meta.get(MADE_ZERO, False)
        for producer in spot.producers
    )
    fine = quantizer.spec.bits >= LEARN_INPUTS_BELOW and not quantizer.observer.only_a_start
    if fine and all(producer.op == "placeholder" for producer in spot.producers):
        quantizer.requires_grad_(False)
    path = fresh_name(graph_module, f"{first.name}_fake_quant")
    graph_module.add_submodule(path, quantizer.train(graph_module.training))

    def reads_codes(user: fx.Node) -> bool:
        # Operands of a computed weight stay float: the weight has a quantizer of its own.
        return not (user in placed or user in rules.of_weights or _reads_shape(user))

    placed = set()
    for producer in spot.producers:
        with graph_module.graph.inserting_after(_last_of_its_kind(producer)):
            node = graph_module.graph.call_module(path, (producer,))
        node.meta.update({FLOAT: True, OWNER: producer.meta.get(OWNER, "")})
        placed.add(node)
        producer.replace_all_uses_with(node, delete_user_cb=reads_codes)


def _last_of_its_kind(producer: fx.Node) -> fx.Node:
    """The node to insert a call after: that of an argument goes after the last argument."""
    if producer.op != "placeholder":
        return producer
    while producer.next.op == "placeholder":
        producer = producer.next
    return producer


def _reads_shape(user: fx.Node) -> bool:
    if user.op == "call_method":
        return user.target in READS_SHAPE
    if user.target is getattr:
        return user.args[1] in READS_SHAPE
    return False


def insert_weight_quantizers(graph_module: fx.GraphModule, rules: Rules, maker: Maker) -> None:
    """Quantize the parameters that functional layers (F.conv2d ...) multiply with."""
    for node in list(graph_module.graph.nodes):
        weight = rules.weight_operand(node)
        kind = rules.kind(node)
        if weight is None or kind not in rules.placement.weights or rules.exclude.has_node(node):
            continue
        axis = rules.weight_axis(node)
        holder = fresh_name(graph_module, f"{node.name}_parameters")
        path = f"{holder}.weight_fake_quant"
        graph_module.add_submodule(holder, nn.Module().train(graph_module.training))
        quantizer = maker.for_weight(axis, _weight_name(weight), rules.settings(node))
        if SHAPE in weight.meta:
            quantizer.size_for(weight.meta[SHAPE])
        graph_module.add_submodule(path, quantizer.train(graph_module.training))
        with graph_module.graph.inserting_before(node):
            call = graph_module.graph.call_module(path, (weight,))
        call.meta.update({FLOAT: True, OWNER: node.meta.get(OWNER, "")})
        node.replace_input_with(weight, call)
        rules.of_weights.add(call)
    graph_module.graph.lint()
    graph_module.recompile()


def _weight_name(weight: fx.Node) -> str:
    """The name of a parameter, or of the one parameter that a weight is computed from."""
    while weight.op != "get_attr" and len(weight.all_input_nodes) == 1:
        (weight,) = weight.all_input_nodes
    return str(weight.target) if weight.op == "get_attr" else weight.name


def fill_untraced(
    model: nn.Module, untraced: list[str], maker: Maker, choices: LayerChoices
) -> None:
    """Add quantizers to modules without a graph: products of activations, FloatFunctional."""
    wanted = maker.backend.placement.inputs
    for path, module in list(model.named_modules()):
        chosen = choices.of_module(path)
        if not inside(path, untraced) or chosen.float:
            continue

        def made(name: str, to: nn.Module = module, how: LayerSettings = chosen) -> FakeQuantize:
            return maker.for_activation(name, chosen=how).train(to.training)

        if isinstance(module, ActivationProduct) and "MatMul" in wanted:
            module.left_fake_quant = made(f"{path}.left")
            module.right_fake_quant = made(f"{path}.right")
        elif type(module).__name__ == "FloatFunctional" and "Add" in wanted:
            # torch's helper for sums and products: its results go through this child.
            module.activation_post_process = made(path)


def asks_for_inputs(module: nn.Module, backend: Backend) -> bool:
    """Whether a layer outside of any graph quantizes its input."""
    placement = backend.placement
    kind = module_kind(module)
    return kind != "Embedding" and kind in (placement.inputs or placement.outputs)


def list_quantizers(model: nn.Module, report: Report) -> None:
    """Fill the rows of the report."""
    for path, module in model.named_modules():
        if isinstance(module, FakeQuantize):
            how = f"{module.algorithm} from {type(module.observer).__name__}"
            report.rows.append(Row(path, module.name or path, str(module.spec), how))


def _tensor_name(node: fx.Node) -> str:
    return str(node.target) if node.op in ("call_module", "placeholder", "get_attr") else node.name
