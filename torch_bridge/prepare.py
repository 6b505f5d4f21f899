"""Turns a float model into one that trains with a backend's quantizers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, fx, nn

from onnxq.backend import Backend, chosen_backend
from onnxq.calibration.recipe import Recipe
from onnxq.calibration.recorded_grids import GridRecord
from onnxq.errors import OptionError, UnsupportedModelError
from onnxq.parsing.argument_types import takes
from onnxq.quant.settings import Settings
from torch_bridge.capture import ladder
from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.ladder import Asked
from torch_bridge.capture.preserved_attributes import preserve
from torch_bridge.capture.quantized_graph import QuantizedGraph
from torch_bridge.capture.report import Report
from torch_bridge.capture.tracing import TraceOptions, inside
from torch_bridge.capture.value_types import mark_values
from torch_bridge.fake_quant import FakeQuantize
from torch_bridge.insertion import fusion, training_recipe
from torch_bridge.insertion.float_names import float_names, float_tensors
from torch_bridge.insertion.insert_quantizers import (
    Maker,
    asks_for_inputs,
    fill_untraced,
    insert_activation_quantizers,
    insert_weight_quantizers,
    list_quantizers,
)
from torch_bridge.insertion.layer_choices import FloatParts, LayerChoices
from torch_bridge.insertion.op_kinds import module_kind
from torch_bridge.insertion.overrides import Override
from torch_bridge.insertion.product_functions import expand_products
from torch_bridge.insertion.products import products_of_graph, products_of_modules
from torch_bridge.insertion.restored_layers import restore_layers
from torch_bridge.insertion.rules import Rules
from torch_bridge.insertion.selectors import Selection, Selector, parts_of, product_parts, select
from torch_bridge.insertion.training_recipe import TrainingRecipe
from torch_bridge.insertion.unwritable_readers import unwritable_readers
from torch_bridge.nn import freeze_bn_stats, replace_foreign_frozen
from torch_bridge.nn.attention import ActivationProduct, Attention, expand_attention
from torch_bridge.nn.hooks import changed_hooks, keep_hooks

How = Override | Mapping[str, Any] | str | None
Given = TrainingRecipe | Recipe | Settings | Iterable[Sequence[Any]] | str | Path | None


@takes(
    backend=(str, Backend, None),
    example_inputs=(Sequence, Tensor),
    example_kwargs=(Mapping, None),
)
def prepare(
    model: nn.Module,
    backend: str | Backend | None = None,
    example_inputs: Sequence[Any] | Tensor = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    settings: Given = None,
    weight: How = None,
    activation: How = None,
    exclude: Selector | Iterable[Selector] = (),
    include: Selector | Iterable[Selector] = (),
    leaf_modules: Iterable[str | type[nn.Module]] = (),
    concrete_args: Mapping[str, Any] | None = None,
    tracer: fx.Tracer | type[fx.Tracer] | None = None,
    preserve_attributes: Iterable[str] = (),
    freeze_bn: bool = False,
    capture: Asked = "auto",
) -> nn.Module:
    """Copy `model` and insert the quantizers of `backend`, all of them off.

    Two kinds of scales keep the range that was observed, although the algorithm could learn them:

    * those of the network's inputs with 8 bits or more. They are not trained, so the gradient of
      the whole input is saved. `q.x_fake_quant.requires_grad_(True)` lets that of `x` learn
      (`onnxq_report` has the paths). The steps that the observers 'lsq' and 'lsq-plus' give are no
      ranges to keep: those learn.
    * those of more than 8 bits, if a backend specifies 'lsq': they are 'fixed', since learned ones
      drift. Naming the algorithm (`activation="lsq"`) lets them learn.

    Args:
        model: a float model; it is not changed.
        backend: a name ('onnxq backends' lists them) or a Backend; None: that of the recipe.
        example_inputs: positional arguments of a typical call.
        example_kwargs: keyword arguments of that call.
        settings: rules for layers, as `onnxq quantize` takes them: a list, Settings, a Recipe, or
            the path of a JSON file of either. The first rule that matches a layer decides, and it
            goes before `weight` and `activation`. Rules can also select module classes and
            functions. A recipe's ranges come from the same statistics by the same methods; for
            the data that it was made with, they are those it records. Or all choices of an
            earlier `prepare`: what `torch_bridge.recipe` returns, or a file of it.
        weight: changes for weights: an Override, a mapping of its fields, or an algorithm's name.
        activation: the same for activations.
        exclude: parts that stay float: paths, node names, globs, module classes, functions.
        include: parts whose inputs are quantized although the backend's rules do not require it.
        leaf_modules: modules (paths, globs or classes) that the tracer does not look into.
        concrete_args: values of arguments that the graph is made for.
        tracer: a torch.fx.Tracer, or a class of one, to trace with.
        preserve_attributes: paths of attributes and methods that the prepared model must have.
        freeze_bn: use the running statistics of batch normalisations in training too. Biases,
            and weights without a scale per channel, are rounded as those statistics fold into
            them, so activation checkpointing needs it: its second forward pass would find
            statistics that the first has moved.
        capture: how the model becomes a graph: 'fx' (torch.fx), 'export' (torch.export), 'modules'
            (no graph, layer by layer), or 'auto': the first of these that captures the model.

    Returns:
        The prepared model, with `onnxq_report` (a record of it) and `onnxq_backend` (the name of
        the backend, or the Backend that was given).
    """
    plan = training_recipe.plan(
        settings,
        backend.name if isinstance(backend, Backend) else backend,
        weight=weight,
        activation=activation,
        exclude=exclude,
        include=include,
        leaf_modules=leaf_modules,
        freeze_bn=freeze_bn,
        capture=capture,
    )
    recipe = plan.quantized
    asked, backend = backend, _target(backend, plan)
    if not isinstance(model, nn.Module):
        raise OptionError(
            f"a {type(model).__name__} is not a torch module",
            fix="pass a torch.nn.Module; wrap a function in one that calls it in forward",
        )
    if any(isinstance(m, FakeQuantize) for m in model.modules()):
        raise OptionError(
            f"{type(model).__name__} is prepared already",
            fix="prepare the float model, and load a checkpoint into the result of prepare",
        )
    maker = Maker(backend, plan.weight, plan.activation)
    if recipe is not None:
        maker = replace(maker, method=recipe.method, record=GridRecord(recipe.grids))
    call = ExampleCall(model, example_inputs, example_kwargs)
    ours = _copied(model)
    before = ours.state_dict(keep_vars=True)
    report = Report(backend.name)
    if recipe is not None and recipe.smooth:
        report.cautions.append(_not_smoothed(recipe))
    if recipe is not None and recipe.variant is not None:
        report.notes.append(f"the recipe's variant: deploy with variant='{recipe.variant}'")
    report.notes += [f"{p}: frozen batch norm" for p in replace_foreign_frozen(ours)]
    ours, notes = expand_attention(ours)
    report.notes += notes
    tensors = float_tensors(before, ours)
    options = _trace_options(ours, backend, plan.leaf_modules, concrete_args, tracer)
    captured = ladder.capture(ours, call, options, plan.capture)
    graph_module, report.leaves = captured.graph_module, captured.leaves
    report.capture, report.capture_reason = captured.rung, captured.reason
    report.cautions += captured.cautions
    if graph_module is not None:
        _mark(graph_module, ours, call, backend)
    graph = None if graph_module is None else graph_module.graph
    choices = _choices(plan.settings, ours, graph)
    report.rules = choices.decided(product_parts(ours, graph))
    left_out = FloatParts(select(plan.exclude, ours, graph, "exclude"), choices)
    taken_in = select(plan.include, ours, graph, "include")
    prepared: nn.Module = ours
    if graph_module is None:
        report.traced = False
        _without_graph(ours, maker, left_out, choices, report)
    else:
        prepared = graph_module
        if captured.rung == "fx":  # torch.export calls the hooks of the model itself, too
            keep_hooks(ours, graph_module)
        _with_graph(graph_module, maker, left_out, taken_in, choices, report)
        report.cautions += changed_hooks(ours, graph_module)
        preserve(ours, graph_module, preserve_attributes)
    _follow_device(prepared)
    if plan.freeze_bn:
        freeze_bn_stats(prepared)
    list_quantizers(prepared, report)
    _keep_recipe(prepared, replace(plan, capture=captured.rung))
    prepared.onnxq_float_names = float_names(tensors, prepared)  # type: ignore[assignment]
    prepared.onnxq_report = report  # type: ignore[assignment]
    target = asked if isinstance(asked, Backend) else backend.name
    prepared.onnxq_backend = target  # type: ignore[assignment]
    report.warn()
    return prepared


def _target(backend: str | Backend | None, plan: TrainingRecipe) -> Backend:
    """The backend to prepare for: the one given, or that of the recipe."""
    name = backend.name if isinstance(backend, Backend) else backend
    recipe = plan.quantized
    for made_for in (plan.backend, *(() if recipe is None else (recipe.backend,))):
        if name is not None and name != made_for:
            raise OptionError(
                f"the recipe is for {made_for}, and the backend given is {name}",
                fix="leave the backend out, or give the recipe's settings alone: settings=recipe"
                ".settings",
            )
    variant = None if recipe is None else recipe.variant
    return chosen_backend(plan.backend if backend is None else backend, variant)


def _choices(settings: Settings, model: nn.Module, graph: fx.Graph | None) -> LayerChoices:
    try:
        return LayerChoices(settings, parts_of(model, graph) if settings.rules else {})
    except OptionError as error:
        if graph is None:
            error.add_note("the model is captured module by module: it has no functions to select")
        raise


def _not_smoothed(recipe: Recipe) -> str:
    one = len(recipe.smooth) == 1
    return (
        f"the recipe smooths {len(recipe.smooth)} {'tensor' if one else 'tensors'} "
        f"('{min(recipe.smooth)}'{'' if one else ' among them'}), which is not done in training: "
        "ranges there and after there differ from those of 'onnxq quantize'. Quantize with "
        "smooth=False (--no-smooth) for a recipe that training can follow"
    )


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} cannot be copied: {type(error).__name__}: {error}",
            fix="detach tensors that the model holds besides its parameters and buffers",
        ) from error


def _trace_options(
    model: nn.Module,
    backend: Backend,
    leaf_modules: Iterable[str],
    concrete_args: Mapping[str, Any] | None,
    tracer: fx.Tracer | type[fx.Tracer] | None,
) -> TraceOptions:
    return TraceOptions(
        (Attention, ActivationProduct),
        frozenset(fusion.leaf_types(backend.name)),
        frozenset(select(leaf_modules, model, None, "leaf_modules").modules),
        None if concrete_args is None else dict(concrete_args),
        tracer,
    )


def _mark(
    graph_module: QuantizedGraph, model: nn.Module, call: ExampleCall, backend: Backend
) -> None:
    """Mark float tensors by a run, and write products that are hidden in functions as such."""
    try:
        mark_values(graph_module, call)
    except Exception:
        call.run(model)  # raises an error of its own if the example is wrong
        raise
    expand_products(graph_module, of_activations="MatMul" in backend.placement.inputs)
    restore_layers(graph_module, model)


# -- with and without a graph ----------------------------------------------------------------------


def _with_graph(
    graph_module: fx.GraphModule,
    maker: Maker,
    left_out: Selection,
    taken_in: Selection,
    choices: LayerChoices,
    report: Report,
) -> None:
    placement = maker.backend.placement
    if placement.fuse:
        report.notes += fusion.fuse(graph_module, maker.backend.name)
    rules = Rules(graph_module, placement, left_out, taken_in, choices)
    called = {str(n.target) for n in graph_module.graph.nodes if n.op == "call_module"}
    at_the_ends = {str(n.target) for n in rules.boundary if n.op == "call_module"}
    untraced = [p for p in called if module_kind(graph_module.get_submodule(p)) is None]
    _swap(graph_module, maker, left_out, choices, untraced, at_the_ends, report)
    rules.modules.update(graph_module.named_modules(remove_duplicate=False))
    spots = rules.spots()
    report.notes += unwritable_readers(rules, spots, maker.backend.name)
    report.products += products_of_graph(rules, spots)
    insert_weight_quantizers(graph_module, rules, maker)
    insert_activation_quantizers(graph_module, rules, spots, maker)
    fill_untraced(graph_module, untraced, maker, choices)
    report.products += products_of_modules(graph_module, untraced, left_out)


def _without_graph(
    model: nn.Module, maker: Maker, left_out: Selection, choices: LayerChoices, report: Report
) -> None:
    if maker.backend.placement.boundary_bits is not None:
        report.notes.append("first and last layers are not known without a graph")
    _swap(model, maker, left_out, choices, [""], set(), report)
    fill_untraced(model, [""], maker, choices)
    report.products += products_of_modules(model, [""], left_out)


def _swap(
    model: nn.Module,
    maker: Maker,
    left_out: Selection,
    choices: LayerChoices,
    untraced: list[str],
    boundary: set[str],
    report: Report,
) -> None:
    """Replace layers by quantized ones; those outside of the graph quantize their inputs too."""
    backend = maker.backend
    path_of = {id(m): p for p, m in model.named_modules()}

    def weight(layer: nn.Module, axis: int | None) -> nn.Module | None:
        path = path_of[id(layer)]
        if module_kind(layer) not in backend.placement.weights or left_out.has_module(path):
            return None
        chosen = choices.of_module(path)
        if path in boundary:
            chosen = chosen.with_default_bits(backend.placement.boundary_bits)
        quantizer = maker.for_weight(axis, f"{path}.weight", chosen)
        return quantizer.size_for(layer.get_parameter("weight").shape).train(layer.training)

    def bias(layer: nn.Module) -> nn.Module | None:
        return maker.for_bias(f"{path_of[id(layer)]}.bias")

    def input_(layer: nn.Module) -> nn.Module | None:
        path = path_of[id(layer)]
        if not inside(path, untraced) or not asks_for_inputs(layer, backend):
            return None
        chosen = choices.of_module(path)
        return maker.for_activation(f"{path}.input", chosen=chosen).train(layer.training)

    report.notes += fusion.swap(
        model,
        weight,
        make_bias_quantizer=bias,
        make_input_quantizer=input_,
        backend=backend.name,
    )


def _keep_recipe(model: nn.Module, recipe: TrainingRecipe) -> None:
    """Let the first quantizer hold the recipe, whose state every checkpoint contains."""
    for module in model.modules():
        if isinstance(module, FakeQuantize):
            module.recipe = recipe.dumps()
            return


def _follow_device(model: nn.Module) -> None:
    """Move the quantizers to the device of the model, unless it is on several devices."""
    devices = {p.device for p in model.parameters() if p.device.type != "cpu"}
    for module in model.modules():
        if len(devices) == 1 and isinstance(module, FakeQuantize):
            module.to(next(iter(devices)))
