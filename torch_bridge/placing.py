"""Puts quantizers into a captured model: by its graph, those of its blocks, or layer by layer."""

from __future__ import annotations

from dataclasses import replace

from torch import fx, nn

from onnxq.backend import Backend
from torch_bridge.capture.blocks import Block
from torch_bridge.capture.float_comparison import check_graph
from torch_bridge.capture.quantized_graph import QuantizedGraph
from torch_bridge.capture.report import CAPTURES, Report
from torch_bridge.capture.tracing import inside
from torch_bridge.insertion import fusion
from torch_bridge.insertion.insert_quantizers import (
    Maker,
    asks_for_inputs,
    fill_untraced,
    insert_activation_quantizers,
    insert_weight_quantizers,
)
from torch_bridge.insertion.layer_choices import FloatParts, LayerChoices
from torch_bridge.insertion.leaf_inputs import join_leaf_inputs
from torch_bridge.insertion.op_kinds import module_kind
from torch_bridge.insertion.pattern_table import PatternTable
from torch_bridge.insertion.product_functions import expand_products
from torch_bridge.insertion.products import (
    float_products,
    products_of_graph,
    products_of_modules,
)
from torch_bridge.insertion.restored_layers import restore_layers
from torch_bridge.insertion.rules import Rules
from torch_bridge.insertion.selectors import Selection
from torch_bridge.insertion.unwritable_readers import unwritable_readers
from torch_bridge.nn.hooks import changed_hooks, keep_hooks
from torch_bridge.nn.recurrent import Expansion


def write_out(graph_module: QuantizedGraph, model: nn.Module, backend: Backend) -> None:
    """Write products that are hidden in functions as such, and functions of layers as layers."""
    expand_products(graph_module, of_activations="MatMul" in backend.placement.inputs)
    restore_layers(graph_module, model)


def with_graph(
    graph_module: fx.GraphModule,
    maker: Maker,
    table: PatternTable,
    left_out: Selection,
    taken_in: Selection,
    choices: LayerChoices,
    report: Report,
    recurrent: Expansion,
) -> None:
    """Fuse the layers of a graph and insert quantizers where the backend wants them, in place."""
    placement = maker.backend.placement
    if placement.fuse:
        report.notes += fusion.fuse(graph_module, maker.backend.name, table)
    rules = Rules(graph_module, placement, left_out, taken_in, choices)
    called = {str(n.target) for n in graph_module.graph.nodes if n.op == "call_module"}
    at_the_ends = {str(n.target) for n in rules.boundary if n.op == "call_module"}
    untraced = [p for p in called if module_kind(graph_module.get_submodule(p)) is None]
    _swap(graph_module, maker, table, left_out, choices, untraced, at_the_ends, report)
    recurrent.settle(graph_module)
    rules.modules.update(graph_module.named_modules(remove_duplicate=False))
    spots = rules.spots()
    report.notes += unwritable_readers(rules, spots, maker.backend.name)
    report.products += products_of_graph(rules, spots)
    report.notes += float_products(rules, maker.backend.name)
    insert_weight_quantizers(graph_module, rules, maker)
    insert_activation_quantizers(graph_module, rules, spots, maker)
    fill_untraced(graph_module, untraced, maker, choices)
    join_leaf_inputs(graph_module)
    report.products += products_of_modules(graph_module, untraced, left_out, recurrent.left)


def without_graph(
    model: nn.Module,
    maker: Maker,
    table: PatternTable,
    left_out: Selection,
    choices: LayerChoices,
    report: Report,
    recurrent: Expansion,
) -> None:
    """Quantize the layers of a model one by one, in place."""
    if maker.backend.placement.boundary_bits is not None:
        report.notes.append("first and last layers are not known without a graph")
    _swap(model, maker, table, left_out, choices, [""], set(), report)
    recurrent.settle(model)
    fill_untraced(model, [""], maker, choices)
    report.products += products_of_modules(model, [""], left_out, recurrent.left)


def of_block(
    block: Block,
    maker: Maker,
    table: PatternTable,
    left_out: FloatParts,
    taken_in: Selection,
    choices: LayerChoices,
    report: Report,
) -> None:
    """Quantize a submodule by its own graph, and tell so."""
    graph_module, path = block.graph_module, block.path
    # Its first and last layers and values are not those of the network.
    inner = replace(
        maker.backend.placement, boundary_bits=None, graph_inputs=False, graph_outputs=False
    )
    maker = replace(maker, backend=replace(maker.backend, placement=inner))
    write_out(graph_module, block.module, maker.backend)
    if block.captured.rung == "fx":
        keep_hooks(block.module, graph_module)
    told = Report(maker.backend.name)
    of_block = (left_out.below(path), taken_in.below(path), choices.below(path))
    with_graph(graph_module, maker, table, *of_block, told, Expansion())
    told.cautions += changed_hooks(block.module, graph_module)
    told.cautions += [*block.captured.cautions, *check_graph(graph_module, block.call)]
    by = CAPTURES[block.captured.rung]
    report.notes += [f"'{path}' is a graph of its own, captured by {by}"]
    report.notes += [f"'{path}': {note}" for note in told.notes]
    report.cautions += [f"'{path}': {caution}" for caution in told.cautions]
    report.products += [replace(each, name=f"{path}.{each.name}") for each in told.products]


def _swap(
    model: nn.Module,
    maker: Maker,
    table: PatternTable,
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
        table=table,
    )
