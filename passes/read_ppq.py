"""PPQ's private operators to those of ONNX.

PPQ (and its fork for ESP-DL) writes operators into ONNX's own domain that no runtime supports. It
takes a ConvTranspose of stride s apart:

    InsertZeros(x)   s - 1 zeros between neighbours along each spatial axis, `output_padding`
                     zeros after the last one; a plain Conv follows

ConvTranspose with a kernel of one weight, 1, for each channel spreads values apart in the same way.
Each result is one product with 1, so the numbers stay the same.

An activation f between 16-bit quantizers becomes a table of every n-th code:

    LUT(x)           with x = q * s: f(n * s * round(q / n)), the entry nearest to q

which is f after a quantizer of scale n * s, whose codes reach from -2^15 / n to 2^15 / n. n is a
power of two; for others the chip interpolates between entries, which has no such form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.dialects.node_rewrite import Declined, attempt
from onnxq.edit import constant, producer, replace_by_node, set_input, variable
from onnxq.graph import Model
from onnxq.graph.constants import array, computed, is_constant
from onnxq.operators.traits import DEQUANTIZE
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype

_CODES = 2**15
"""Codes of 16 bits on either side of zero."""


@dataclass(frozen=True)
class ReadPpq(Pass):
    """Read PPQ's private InsertZeros as ConvTranspose of ones, LUT as the function it tabulates."""

    name: ClassVar[str] = "read-ppq"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes("InsertZeros"):
            if len(node.inputs) == 1 and "stride" in node.attrs:
                attempt(node, trace, partial(_spread, node, model))
        for node in model.nodes("LUT"):
            if len(node.inputs) == 1 and "original_op_type" in node.attrs:
                attempt(node, trace, partial(_tabulated, node, model))


def _spread(node: gs.Node, model: Model) -> str:
    x, strides = node.inputs[0], [int(s) for s in node.attrs["stride"]]
    channels = _channels(node)
    if channels is None:
        raise Declined(f"the number of channels of '{x.name}' is unknown")
    extra = [int(p) for p in node.attrs.get("output_padding", [0] * len(strides))]
    attrs = {"group": channels, "strides": strides, "output_padding": extra}
    ones = np.ones((channels, 1, *[1] * len(strides)), x.dtype or np.float32)
    weight = constant(model, f"{node.name or node.outputs[0].name}.ones", ones)
    replace_by_node(node, "ConvTranspose", [x, weight], model, attrs)
    return f"ConvTranspose of ones, stride {strides}"


def _tabulated(node: gs.Node, model: Model) -> str:
    step = int(node.attrs.get("int16_lut_step", 0))
    if step < 1 or step & (step - 1):
        raise Declined(
            f"it interpolates between entries {step} codes apart, which is not a power of two"
        )
    x = node.inputs[0]
    scale = _scale(x)
    op = str(node.attrs.pop("original_op_type"))
    del node.attrs["int16_lut_step"]
    node.op = op
    if step > 1:
        lo, hi = -_CODES // step, _CODES // step
        zero, wide = np.zeros((), np.int64), scale * np.float32(step)
        coarse = QParams(x.name, qtype("int16"), wide, zero, lo=lo, hi=hi)
        entry = variable(model, f"{x.name}.entry", like=x)
        fake_quantize.make(model, x, entry, coarse, node.owner, dtype=scale.dtype)
        set_input(node, 0, entry)
    return f"{op}, looked up in entries {step} codes apart"


def _scale(x: gs.Tensor) -> np.ndarray:
    """The scale of the 16-bit codes that index the table."""
    maker = producer(x, *DEQUANTIZE)
    scale = None if maker is None else computed(maker.inputs[1])
    if scale is None or scale.size != 1:
        raise Declined(f"the scale of '{x.name}', which indexes its table, is unknown")
    return scale.reshape(())


def _channels(node: gs.Node) -> int | None:
    """Channels of the tensor that is spread apart: from its shape, or from the Conv after it."""
    for tensor in (node.inputs[0], node.outputs[0]):
        if tensor.shape is not None and len(tensor.shape) > 1 and isinstance(tensor.shape[1], int):
            return int(tensor.shape[1])
    result = node.outputs[0]
    for _ in range(3):  # perhaps a quantizer's two nodes in between
        if not result.outputs:
            return None
        consumer = result.outputs[0]
        if consumer.op == "Conv":
            weight = consumer.inputs[1]
            values = array(weight if is_constant(weight) else weight.inputs[0].inputs[0])
            groups = int(consumer.attrs.get("group", 1))
            return None if values is None else int(values.shape[1]) * groups
        result = consumer.outputs[0]
    return None
