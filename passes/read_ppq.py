"""PPQ's private operators to those of ONNX.

PPQ (and its fork for ESP-DL) writes operators into ONNX's own domain that no runtime knows. It
takes a ConvTranspose of stride s apart:

    InsertZeros(x)   s - 1 zeros between neighbours along each spatial axis, `output_padding`
                     zeros behind the last one; a plain Conv follows

Spreading values apart is what ConvTranspose does with a kernel of one weight, 1, for each channel;
each result is one product with 1, so the numbers stay the same.

An activation f between 16-bit quantizers becomes a table of every n-th code:

    LUT(x)           with x = q * s: f(n * s * round(q / n)), the entry nearest to q

which is f behind a quantizer of scale n * s, whose codes reach from -2^15 / n to 2^15 / n. n is a
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
from onnxq.edit import constant, producer, remove, set_input, variable
from onnxq.edit import new_node as make_node
from onnxq.graph import Model, domain_of
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
            if not domain_of(node) and len(node.inputs) == 1 and "stride" in node.attrs:
                attempt(node, trace, partial(_spread, node, model))
        for node in model.nodes("LUT"):
            if not domain_of(node) and len(node.inputs) == 1 and "original_op_type" in node.attrs:
                attempt(node, trace, partial(_tabulated, node, model))


def _spread(node: gs.Node, model: Model) -> str:
    strides = [int(s) for s in node.attrs["stride"]]
    channels = _channels(node)
    if channels is None:
        raise Declined(f"the number of channels of '{node.inputs[0].name}' is unknown")
    x, out, owner = node.inputs[0], node.outputs[0], node.owner
    name = node.name or out.name
    extra = [int(p) for p in node.attrs.get("output_padding", [0] * len(strides))]
    remove(node, model)
    ones = np.ones((channels, 1, *[1] * len(strides)), x.dtype or np.float32)
    make_node(
        model,
        "ConvTranspose",
        [x, constant(model, f"{name}.ones", ones)],
        [out],
        name=name,
        attrs={"group": channels, "strides": strides, "output_padding": extra},
        graph=owner,
    )
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
        coarse = QParams(
            tensor=x.name,
            qtype=qtype("int16"),
            scale=scale * np.float32(step),
            zero_point=np.zeros((), np.int64),
            lo=-_CODES // step,
            hi=_CODES // step,
        )
        entry = variable(model, f"{x.name}.entry", like=x)
        fake_quantize.make(model, x, entry, coarse, node.owner, dtype=scale.dtype)
        set_input(node, 0, entry)
    return f"{op}, looked up in entries {step} codes apart"


def _scale(x: gs.Tensor) -> np.ndarray:
    """The scale of the 16-bit codes that index the table."""
    maker = producer(x, *DEQUANTIZE)
    scale = None if maker is None else computed(maker.inputs[1])
    if scale is None or scale.size != 1:
        raise Declined(f"the scale of '{x.name}', which indexes its table, is not known")
    return scale.reshape(())


def _channels(node: gs.Node) -> int | None:
    """Channels of what is spread apart: from its shape, or from the weight of the Conv behind."""
    for tensor in (node.inputs[0], node.outputs[0]):
        if tensor.shape is not None and len(tensor.shape) > 1 and isinstance(tensor.shape[1], int):
            return int(tensor.shape[1])
    behind, reader = node.outputs[0], None
    for _ in range(3):  # perhaps a quantizer's two nodes in between
        reader = behind.outputs[0] if behind.outputs else None
        if reader is None or reader.op == "Conv":
            break
        behind = reader.outputs[0]
    if reader is None or reader.op != "Conv":
        return None
    weight = reader.inputs[1]
    stored = weight if is_constant(weight) else weight.inputs[0].inputs[0]
    values = array(stored)
    return None if values is None else int(values.shape[1]) * int(reader.attrs.get("group", 1))
