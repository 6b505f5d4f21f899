"""Split a Gemm with a float result into MatMul and Add, which onnxruntime runs in integers.

onnxruntime rounds the float bias of a Gemm only if its result is quantized. Where it is not, as
before the outputs of a network, Gemm runs in float, and its weight is turned into floats in every
run. The product alone has an integer kernel with a float result (MatMulIntegerToFloat):

    Gemm(x, w, b) = x w + b  ->  max(x w, lowest finite number) + b

The maximum changes nothing: without it onnxruntime would make a Gemm of product and sum again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.quantized_neighbours import becomes_codes
from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.edit import (
    constant,
    describe,
    inputs_of,
    new_node,
    producer,
    replace_by_node,
    variable,
)
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.float_guard import lowest
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams


@dataclass(frozen=True)
class SplitGemm(Pass):
    """Make MatMul and Add of Gemm nodes with quantized operands and a float result."""

    name: ClassVar[str] = "split-gemm"
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for layer in model.nodes("Gemm"):
            reason = _why_not(layer)
            if reason is not None:
                trace.skip(describe(layer), reason)
            elif not becomes_codes(layer.outputs[0]):
                _split(model, layer)
                trace.rewrote(describe(layer), "its result is float, and so would Gemm be")


def _why_not(layer: gs.Node) -> str | None:
    """Why the layer has no integer product, or has one as it is."""
    if inputs_of(layer, 3)[2] is None:
        return "it has no bias"
    if layer.attrs.get("alpha", 1.0) != 1.0 or layer.attrs.get("beta", 1.0) != 1.0:
        return "it has factors"
    if layer.attrs.get("transA", 0):
        return "its input is transposed"
    grids = [_grid(tensor) for tensor in layer.inputs[:2]]
    if any(grid is None or grid.qtype.bits != 8 or grid.block for grid in grids):
        return "an operand is float, or does not have 8 bits"
    if grids[0] is not None and grids[0].axis is not None:
        return "its input has a scale per channel"
    if _weight(layer.inputs[1]) is None:
        return "its weight is computed"
    return None


def _grid(tensor: gs.Tensor) -> QParams | None:
    """The integer grid of a quantized tensor."""
    node = producer(tensor, FAKE_QUANTIZE)
    grid = None if node is None else fake_quantize.params_of(node)
    return None if grid is None or grid.qtype.floating else grid


def _weight(tensor: gs.Tensor) -> Array | None:
    """The constant that a quantized tensor is made of."""
    node = producer(tensor, FAKE_QUANTIZE)
    return None if node is None else array(node.inputs[0])


def _split(model: Model, layer: gs.Node) -> None:
    x, w, bias = layer.inputs
    result = layer.outputs[0]
    name = str(layer.name or result.name)
    if layer.attrs.get("transB", 0):
        w = _turned(model, w, layer)
    product = variable(model, f"{result.name}.product", like=result)
    new_node(model, "MatMul", [x, w], [product], name=f"{name}.product", instead_of=layer)
    guarded = variable(model, f"{product.name}.guarded", like=product)
    limit = constant(model, f"{product.name}.lowest", lowest(np.dtype(bias.dtype)))
    new_node(model, "Max", [product, limit], [guarded], name=f"{name}.guard", instead_of=layer)
    replace_by_node(layer, "Add", [guarded, bias], model)


def _turned(model: Model, weight: gs.Tensor, layer: gs.Node) -> gs.Tensor:
    """The transpose of a quantized weight; the old one goes if nothing else reads it."""
    grid, values = _grid(weight), _weight(weight)
    assert grid is not None and values is not None
    turned = constant(model, f"{grid.tensor}.transposed", np.ascontiguousarray(values.T))
    made = variable(model, f"{weight.name}.transposed", like=None)
    axis = None if grid.axis is None else 1 - grid.axis
    row = replace(grid, tensor=turned.name, axis=axis)
    fake_quantize.make(model, turned, made, row, layer.owner)
    return made


__all__ = ["SplitGemm"]
