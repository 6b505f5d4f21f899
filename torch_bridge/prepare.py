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
from torch_bridge.capture.blocks import capture_blocks
from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.float_comparison import check_graph, check_modules
from torch_bridge.capture.ladder import Asked
from torch_bridge.capture.preserved_attributes import preserve
from torch_bridge.capture.report import Report
from torch_bridge.capture.tracing import TraceOptions
from torch_bridge.fake_quant import FakeQuantize
from torch_bridge.insertion import fusion, training_recipe
from torch_bridge.insertion.float_names import float_names, float_tensors
from torch_bridge.insertion.insert_quantizers import (
    Maker,
    list_quantizers,
)
from torch_bridge.insertion.layer_choices import FloatParts, LayerChoices
from torch_bridge.insertion.overrides import Override
from torch_bridge.insertion.pattern import Pattern
from torch_bridge.insertion.patterns import PATTERNS, own_patterns, replacing, unmatched
from torch_bridge.insertion.selectors import Selector, parts_of, product_parts, select
from torch_bridge.insertion.training_recipe import TrainingRecipe
from torch_bridge.nn import freeze_bn_stats, replace_foreign_frozen
from torch_bridge.nn.attention import ActivationProduct, Attention, expand_attention
from torch_bridge.nn.given_weights import checked_weights
from torch_bridge.nn.hooks import changed_hooks, keep_hooks, refuse_weights_of_hooks
from torch_bridge.nn.recurrent import Recurrent, expand_recurrent, packed_layers
from torch_bridge.nn.recurrent_cell import RecurrentCell
from torch_bridge.placing import of_block, with_graph, without_graph, write_out

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
    dynamic_axes: Mapping[str, Iterable[int]] | None = None,
    tracer: fx.Tracer | type[fx.Tracer] | None = None,
    preserve_attributes: Iterable[str] = (),
    freeze_bn: bool = False,
    capture: Asked = "auto",
    patterns: Iterable[Pattern | str] = (),
) -> nn.Module:
    """Copy `model` and insert the quantizers of `backend`, all of them off.

    Two kinds of scales keep the range that was observed, although the algorithm could learn them:

    * those of the network's inputs with 8 bits or more. They are not trained, so the gradient of
      the whole input is saved. `q.x_fake_quant.requires_grad_(True)` lets that of `x` learn
      (`onnxq_report` has the paths). The steps that the observers 'lsq' and 'lsq-plus' give are no
      ranges to keep: those learn.
    * those of more than 8 bits, if a backend specifies 'lsq': they are 'fixed', since learned ones
      drift. Naming the algorithm (`activation="lsq"`) lets them learn.

    With its quantizers off, the result computes what `model` computes: both run on the example, and
    a layer that differs is an error.

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
        dynamic_axes: axes that later calls may be longer or shorter along, by input name: {'x':
            [2, 3]}. Graphs of torch.fx take any size; torch.export fixes height and width of
            images unless they are named here, since it takes minutes to reason about the sizes
            in deep networks.
        tracer: a torch.fx.Tracer, or a class of one, to trace with.
        preserve_attributes: paths of attributes and methods that the prepared model must have.
        freeze_bn: use the running statistics of batch normalisations in training too. Biases,
            and weights without a scale per channel, are rounded as those statistics fold into
            them, so activation checkpointing needs it: its second forward pass would find
            statistics that the first has moved.
        capture: how the model becomes a graph: 'fx' (torch.fx), 'export' (torch.export), 'modules'
            (no graph, layer by layer), or 'auto': the first of these that captures the model.
        patterns: patterns of fusion for this model, beside those that `register_pattern` and
            packages add and in place of those of the same names, which the report then says.

    Returns:
        The prepared model, with `onnxq_report` (a record of it) and `onnxq_backend` (the name of
        the backend, or the Backend that was given).
    """
    given = own_patterns(patterns)
    plan = training_recipe.plan(
        settings,
        backend.name if isinstance(backend, Backend) else backend,
        tuple(given),
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
    table = PATTERNS.having(given.get(n) or PATTERNS.named(n) for n in plan.patterns)
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
    refuse_weights_of_hooks(model)
    ours = _copied(model)
    before = ours.state_dict(keep_vars=True)
    report = Report(backend.name)
    if recipe is not None and recipe.smooth:
        report.cautions.append(_not_smoothed(recipe))
    if recipe is not None and recipe.variant is not None:
        report.notes.append(f"the recipe's variant: deploy with variant='{recipe.variant}'")
    report.cautions += table.not_loaded()
    report.notes += [f"{p}: frozen batch norm" for p in replace_foreign_frozen(ours)]
    ours, notes = expand_attention(ours)
    report.notes += notes
    ours, recurrent = expand_recurrent(ours, packed_layers(ours, call.result))
    tensors = float_tensors(before, ours)
    leaf_types = fusion.leaf_types(backend.name, table)
    options = replace(
        _trace_options(ours, leaf_types, plan.leaf_modules, concrete_args, tracer),
        open_axes=call.axes_by_name(dynamic_axes or {}),
    )
    captured = ladder.capture(ours, call, options, plan.capture)
    graph_module, report.leaves = captured.graph_module, captured.leaves
    report.capture, report.capture_reason = captured.rung, captured.reason
    report.cautions += captured.cautions
    if graph_module is not None:
        write_out(graph_module, ours, backend)
    graph = None if graph_module is None else graph_module.graph
    choices = _choices(plan.settings, ours, graph)
    report.rules = choices.decided(product_parts(ours, graph))
    left_out = FloatParts(select(plan.exclude, ours, graph, "exclude"), choices)
    taken_in = select(plan.include, ours, graph, "include")
    blocks = []
    if plan.capture == "auto":
        within = [""] if graph_module is None else [leaf.path for leaf in captured.leaves]
        whole = {path for path, _ in ours.named_modules() if left_out.has_module(path)}
        blocks = capture_blocks(ours, call, options, within, frozenset(whole))
    prepared: nn.Module = ours if graph_module is None else graph_module
    for block in blocks:
        prepared.set_submodule(block.path, nn.Identity())
    if graph_module is None:
        report.traced = False
        without_graph(ours, maker, table, left_out, choices, report, recurrent)
    else:
        if captured.rung == "fx":  # torch.export calls the hooks of the model itself, too
            keep_hooks(ours, graph_module)
        with_graph(graph_module, maker, table, left_out, taken_in, choices, report, recurrent)
    for block in blocks:
        of_block(block, maker, table, left_out, taken_in, choices, report)
        prepared.set_submodule(block.path, block.graph_module)
    recurrent.settle(prepared)
    report.notes += recurrent.notes(prepared)
    if graph_module is not None:
        report.cautions += changed_hooks(ours, graph_module)
        preserve(ours, graph_module, preserve_attributes)
    _follow_device(prepared)
    with checked_weights(prepared):
        if graph_module is None:
            report.cautions += check_modules(prepared, model, call)
        else:
            report.cautions += check_graph(graph_module, call)
    report.notes += replacing(given.values(), backend)
    report.notes += unmatched(given.values(), model, prepared, backend)
    if plan.freeze_bn:
        freeze_bn_stats(prepared)
    list_quantizers(prepared, report)
    again = plan.capture if blocks else captured.rung
    _keep_recipe(prepared, replace(plan, capture=again))
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
    leaf_types: set[type[nn.Module]],
    leaf_modules: Iterable[str],
    concrete_args: Mapping[str, Any] | None,
    tracer: fx.Tracer | type[fx.Tracer] | None,
) -> TraceOptions:
    return TraceOptions(
        (Attention, ActivationProduct, Recurrent, RecurrentCell),
        frozenset(leaf_types),
        frozenset(select(leaf_modules, model, None, "leaf_modules").modules),
        None if concrete_args is None else dict(concrete_args),
        tracer,
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
