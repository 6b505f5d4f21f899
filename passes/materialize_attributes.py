"""Write out attributes that have their default value.

Some converters read attributes by position or give up if one is missing. The defaults that ONNX's
operator definitions state are added; for convolutions and pools also those that follow from the
rank of their windows: kernel_shape from the weight, strides and dilations of 1, pads of 0.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_graphsurgeon as gs
from onnx import AttributeProto, helper

from onnxq.graph import Model, domain_of
from onnxq.opsets.opset_upgrade import schema_of
from onnxq.pass_ import Pass, Trace

_WEIGHTED = ("Conv", "ConvTranspose")
_WINDOWED = (*_WEIGHTED, "MaxPool", "AveragePool", "LpPool")
_LEFT_OUT = ("QuantizeLinear", "DequantizeLinear", "Cast", "CastLike")
"""Their defaults repeat what other inputs specify, or apply to some types only."""


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
    known = _attributes(node.op, opset)
    found = {key: value for key, value in known.items() if value is not None}
    if node.op in _WINDOWED:
        found |= {key: value for key, value in _windows(node).items() if key in known}
    return found


def _windows(node: gs.Node) -> dict[str, Any]:
    """Attributes that follow from the rank of the windows."""
    kernel = node.attrs.get("kernel_shape")
    if kernel is None and node.op in _WEIGHTED and len(node.inputs) > 1:
        shape = node.inputs[1].shape
        kernel = None if shape is None else shape[2:]
    if not kernel or not all(isinstance(size, int) for size in kernel):
        return {}
    rank = len(kernel)
    found = {"kernel_shape": list(kernel), "strides": [1] * rank, "dilations": [1] * rank}
    if node.attrs.get("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in node.attrs:
        found |= {"pads": [0] * (2 * rank), "output_padding": [0] * rank}
    return found


@functools.cache
def _attributes(op: str, opset: int) -> dict[str, Any]:
    """The attributes of an operator with their defaults; None for those without."""
    schema = schema_of(op, opset)
    found = {}
    for name, attribute in ({} if schema is None else schema.attributes).items():
        default = attribute.default_value
        stated = default.type != AttributeProto.UNDEFINED
        value = helper.get_attribute_value(default) if stated else None
        found[name] = value.decode() if isinstance(value, bytes) else value
    return found
