"""Compute what follows from sizes alone, where every input has a fixed size.

Exporters write the size of a tensor as Shape, and arithmetic on it, even where it never changes:

    Shape -> Gather -> Add -> Div -> Mul -> Slice

The sizes behind such a Slice are known only once its ends are. So this goes along a chain of n
such nodes in one run of the model on zeros, instead of n rounds of inferring and folding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.edit import op_name
from onnxq.errors import OnnxqError
from onnxq.folding.to_initializers import freeze
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace
from onnxq.running.sessions import reference
from onnxq.storage.exporter import sorted_nodes
from onnxq.storage.importer import bodies

_SOURCES = {"Shape", "Size"}
_ARITHMETIC = {
    *("Add", "Cast", "Ceil", "Concat", "Div", "Floor", "Gather", "Identity", "Max", "Min", "Mod"),
    *("Mul", "Neg", "ReduceProd", "Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze"),
}
"""What sizes are computed with; all keep them small."""
_SIZED_BY_VALUES = {
    *("CenterCropPad", "Col2Im", "ConstantOfShape", "Expand", "MaxUnpool", "OneHot", "Pad"),
    *("Range", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Reshape"),
    *("Resize", "Slice", "Split", "Squeeze", "Tile", "TopK", "Unsqueeze", "Upsample"),
}
"""The values of their inputs after the first say how large the output is."""
_BY_THE_FIRST = {"ConstantOfShape", "Range"}
"""Of these, the first one too."""
_COUNTED = {"Compress", "NonMaxSuppression", "NonZero", "Unique", "StringSplit", "StringNormalizer"}


@dataclass(frozen=True)
class FoldSizes(Pass):
    """Replace sizes of tensors, and arithmetic on sizes, by their values.

    Only in models whose inputs all have a fixed size, and only sizes that no value of an input
    changes. onnxruntime computes them.
    """

    name: ClassVar[str] = "fold-sizes"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        sources = model.nodes(*_SOURCES)
        loose = [t.name for t in model.graph.inputs if not _is_fixed(t)]
        if not sources or loose:
            for node in sources:
                trace.skip(node, f"input '{loose[0]}' has no fixed size")
            return
        nodes = _computed_from_sizes(model, trace)
        inside = {id(node) for node in nodes}
        wanted = {
            tensor.name: tensor
            for node in nodes
            for tensor in node.outputs
            if any(id(reader) not in inside for reader in tensor.outputs)
        }
        kept = {id(n) for n in nodes if any(model.is_output(t) for t in n.outputs)}
        if not wanted:
            return
        feeds = {t.name: np.zeros(t.shape, t.dtype) for t in model.graph.inputs}
        try:
            found = reference(model, taps=wanted).run(feeds)
        except OnnxqError as error:
            trace.note(f"sizes stay computed: {error.what}")
            return
        gone = [node for node in nodes if id(node) not in kept]
        freeze(model, gone, {id(t): found[name] for name, t in wanted.items()})
        for node in gone:
            trace.rewrote(node)
        for node in model.nodes():  # what could not be inferred before
            for tensor in node.outputs:
                if tensor.shape is not None and not _is_fixed(tensor) and _is_inner(model, tensor):
                    tensor.shape = None


def _is_fixed(tensor: gs.Tensor) -> bool:
    return tensor.shape is not None and all(isinstance(d, int) for d in tensor.shape)


def _is_inner(model: Model, tensor: gs.Tensor) -> bool:
    return not model.is_output(tensor) and getattr(tensor, "output_info", None) is None


def _computed_from_sizes(model: Model, trace: Trace) -> list[gs.Node]:
    """Shape nodes of tensors with one size, and arithmetic on their results, in order."""
    sizes: set[int] = set()
    open_: set[int] = set()
    """Tensors whose size may depend on values."""
    found: list[gs.Node] = []
    for node in sorted_nodes(model.graph):
        inputs = [t for t in node.inputs if t.name]
        is_open = any(id(t) in open_ for t in inputs)
        if op_name(node) in _SOURCES and is_open:
            trace.skip(node, f"the size of '{inputs[0].name}' may depend on values")
        values = all(id(t) in sizes or is_constant(t) for t in inputs)
        arithmetic = op_name(node) in _ARITHMETIC and values and any(id(t) in sizes for t in inputs)
        if not is_open and (op_name(node) in _SOURCES or arithmetic):
            sizes.update(id(t) for t in node.outputs)
            found.append(node)
        elif is_open or _may_vary(node, sizes):
            open_.update(id(t) for t in node.outputs)
    return found


def _may_vary(node: gs.Node, sizes: set[int]) -> bool:
    """Whether the size of what a node makes may depend on values."""
    name = op_name(node)
    if bodies(node) or name in _COUNTED or (domain_of(node) and name not in QUANTIZERS):
        return True
    first = 0 if name in _BY_THE_FIRST else 1
    deciding = [t for t in node.inputs[first:] if t.name] if name in _SIZED_BY_VALUES else []
    return any(id(t) not in sizes and not is_constant(t) for t in deciding)
