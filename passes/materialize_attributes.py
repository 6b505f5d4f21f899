"""Attributes that an operator takes by default, written out.

Some converters read attributes by position or give up where one is missing. What ONNX's operator
definitions state as default is added; for convolutions and pools also what follows from the rank
of their windows: kernel_shape from the weight, strides and dilations of 1, pads of 0.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_graphsurgeon as gs
from onnx import AttributeProto, defs, helper

from onnxq.graph import Model, domain_of
from onnxq.pass_ import Pass, Trace

_WEIGHTED = ("Conv", "ConvTranspose")
_WINDOWED = {
    "Conv": ("strides", "dilations", "pads"),
    "ConvTranspose": ("strides", "dilations", "pads", "output_padding"),
    "MaxPool": ("strides", "dilations", "pads"),
    "AveragePool": ("strides", "dilations", "pads"),
    "LpPool": ("strides", "dilations", "pads"),
}
_LEFT_OUT = ("QuantizeLinear", "DequantizeLinear", "Cast", "CastLike")
"""Their defaults say what other inputs say, or mean only some types."""


@dataclass(frozen=True)
class MaterializeAttributes(Pass):
    """Write out attributes that have their default value."""

    name: ClassVar[str] = "materialize-attributes"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes():
            if domain_of(node) or node.op in _LEFT_OUT:
                continue
            added = {k: v for k, v in _defaults(node, model.opset).items() if k not in node.attrs}
            if added:
                node.attrs.update(added)
                trace.rewrote(node, ", ".join(f"{k}={v}" for k, v in added.items()))


def _defaults(node: gs.Node, opset: int) -> dict[str, Any]:
    known = dict(_stated(node.op, opset))
    if node.op in _WINDOWED and "kernel_shape" in _attributes(node.op, opset):
        known |= _windows(node, opset)
    return known


def _windows(node: gs.Node, opset: int) -> dict[str, Any]:
    """What follows from the rank of the windows."""
    kernel = node.attrs.get("kernel_shape")
    if kernel is None and node.op in _WEIGHTED and len(node.inputs) > 1:
        shape = node.inputs[1].shape
        kernel = None if shape is None else list(shape[2:])
    if not kernel or not all(isinstance(size, int) for size in kernel):
        return {}
    rank = len(kernel)
    found: dict[str, Any] = {"kernel_shape": list(kernel)}
    padded = node.attrs.get("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in node.attrs
    for key in _WINDOWED[node.op]:
        if key not in _attributes(node.op, opset):
            continue
        if key == "pads" and padded:
            found[key] = [0] * (2 * rank)
        elif key == "output_padding" and padded:
            found[key] = [0] * rank
        elif key in ("strides", "dilations"):
            found[key] = [1] * rank
    return found


@functools.cache
def _attributes(op: str, opset: int) -> frozenset[str]:
    return (
        frozenset(defs.get_schema(op, opset, "").attributes) if defs.has(op, opset) else frozenset()
    )


@functools.cache
def _stated(op: str, opset: int) -> dict[str, Any]:
    """The defaults in the operator's definition."""
    if not defs.has(op, opset):
        return {}
    found = {}
    for name, attribute in defs.get_schema(op, opset, "").attributes.items():
        default = attribute.default_value
        if default.type == AttributeProto.UNDEFINED:
            continue
        value = helper.get_attribute_value(default)
        found[name] = value.decode() if isinstance(value, bytes) else value
    return found
