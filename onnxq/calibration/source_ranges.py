"""What the quantizers of a model tell: the float network they round, and the range of each tensor.

A range is what the quantizers before a consumer can represent: of a chain of them the smallest, of
several that serve different consumers the one that covers all. Weights become the values that their
quantizers make of them, so that the rounding of the source is not lost.

A quantizer that represents nothing below zero clamps like a Relu. Other grids may not, so a Relu is
put before it, unless nothing negative arrives there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.float_graph import FloatGraph, FloatTensor, Quantizer
from onnxq.analysis.signs import Signs
from onnxq.calibration.ranges import KnownRange, RangeTable, united
from onnxq.canonical.quantized_weights import quantized_weights
from onnxq.canonical.quantizers import QUANTIZERS, row_of
from onnxq.edit import describe, producer, replace
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.traits import WEIGHTED
from onnxq.pass_ import Pass, Trace
from onnxq.pipeline import Pipeline
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from passes.collect_qparams import make_names_unique
from passes.fit_grids import clamp_input
from passes.remove_fake_quant import RemoveFakeQuant
from passes.round_weights import RoundWeights

_LAYERS = WEIGHTED | {"Gemm", "MatMul"}


@dataclass(frozen=True)
class SourceRanges:
    """A quantized network, taken apart."""

    model: Model
    """The float network, its weights on the grids of the source."""
    ranges: RangeTable
    """The ranges of its activations, by their names in it."""
    grids: dict[str, QParams]
    """The grids that its weights lie on."""
    wide: set[str]
    """Tensors whose range may be many times as wide as their values: a float8 grid is fine near
    zero, so tools let it reach far."""


def source_ranges(model: Model, clean: tuple[Pass, ...], trace: Trace) -> SourceRanges:
    """Take a canonical model apart; `clean` are exact passes that simplify it first.

    They run while the quantizers are in place, so that no range ends up at another tensor.
    """
    model = model.clone()
    _free_norms(model, trace)
    made = Pipeline(*clean, RoundWeights()).run(model, in_place=True).model
    made.qparams = QParamTable()  # biases follow the new grids
    make_names_unique(made, trace)
    _name_nodes(made)
    grids = {params.tensor: params for _, params, _ in quantized_weights(made)}
    _keep_clamps(made, trace)
    ranges, wide = RangeTable(), set[str]()
    graph = FloatGraph(made)
    for tensor in graph.quantized:
        if tensor.role is not Role.WEIGHT and (known := _range_of(tensor)) is not None:
            name = graph.name(tensor.tensor)
            ranges[name] = known
            if any(_is_float8(quantizer.node) for quantizer in tensor.quantizers):
                wide.add(name)
    plain = Pipeline(RemoveFakeQuant()).run(made, in_place=True).model
    return SourceRanges(plain, ranges, grids, wide)


def _free_norms(model: Model, trace: Trace) -> None:
    """Remove quantizers between a layer and its batch norm: the two become one layer."""
    for node in model.nodes(*QUANTIZERS):
        consumers = list(node.outputs[0].outputs)
        layer = producer(node.inputs[0], *_LAYERS)
        if layer is None or not consumers or model.is_output(node.outputs[0]):
            continue
        if all(consumer.op == "BatchNormalization" for consumer in consumers):
            trace.note(f"{describe(node)} is between a layer and its batch norm, which become one")
            replace(node, by=node.inputs[0], model=model)


def _name_nodes(model: Model) -> None:
    """Give nodes without a name of their own one: some side files are lists by node."""
    seen: set[str] = set()
    for node in model.nodes():
        if (not node.name or node.name in seen) and node.outputs:
            node.name = model.fresh_node_name(node.outputs[0].name)
        seen.add(node.name)


def _keep_clamps(model: Model, trace: Trace) -> None:
    signs = Signs()
    weights: set[int] = set()
    """Quantizers of constants, also those behind others."""
    for node in model.nodes(*QUANTIZERS):
        above = producer(node.inputs[0])
        if is_constant(node.inputs[0]) or (above is not None and id(above) in weights):
            weights.add(id(node))
            continue
        if _ends(node)[0] >= 0 and not signs.never_negative(node.inputs[0]):
            name = node.inputs[0].name
            clamp_input(model, node, 0.0, np.inf)
            trace.note(f"a Relu clamps '{name}', as {describe(node)} did: its lowest value is 0")


def _ends(node: gs.Node) -> tuple[float, float]:
    """The lowest and highest value that a quantizer represents."""
    row = row_of(node)
    if isinstance(row, LogParams):
        return -row.data_max, row.data_max
    low, high = row.range
    return float(np.min(low)), float(np.max(high))


def _is_float8(node: gs.Node) -> bool:
    row = row_of(node)
    return isinstance(row, QParams) and row.qtype.floating


def _range_of(tensor: FloatTensor) -> KnownRange | None:
    leaves = {use.via for use in tensor.uses if use.via is not None}
    found = [_path_range(leaf) for leaf in tensor.quantizers if leaf in leaves]
    return united(found) if found else None


def _path_range(leaf: Quantizer) -> KnownRange:
    path = [quantizer.node for quantizer in leaf.path()]
    ends = [_ends(node) for node in path]
    low, high = max(e[0] for e in ends), min(e[1] for e in ends)
    row = row_of(path[-1])
    kind = "logarithmic" if isinstance(row, LogParams) else str(row.qtype)
    named = f" '{path[-1].name}'" if path[-1].name else ""
    return KnownRange.of(low, high, f"the {kind} quantizer{named} of the source")


__all__ = ["SourceRanges", "source_ranges"]
