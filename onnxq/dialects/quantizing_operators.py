"""The operators of all dialects that quantize, and those that no pass can read.

A reader turns the constructs of its dialect into the canonical form and leaves the rest alone, so
all of them run on every model, in one order, and files that mix dialects need nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.local_functions import own_forms
from onnxq.canonical.node_form import check_nodes
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.dialects import mqbench, openvino, qonnx
from onnxq.edit import describe, op_name
from onnxq.errors import UnsupportedModelError
from onnxq.graph import Model
from onnxq.graph.hooks import HOOKS
from onnxq.operators.integer_operators import DYNAMIC, MICROSOFT, SUMS, find
from onnxq.operators.traits import DEQUANTIZE, QUANTIZE
from onnxq.operators.weight_axis import LINEAR_OPS

QDQ = (*QUANTIZE, *DEQUANTIZE)
_QONNX = {"Quant", "BipolarQuant", "Trunc"}
_BLOCKS = (f"{MICROSOFT}::MatMulNBits", f"{MICROSOFT}::GatherBlockQuantized")


@dataclass(frozen=True)
class Unreadable:
    """A construct that quantizes in a way the canonical form cannot express."""

    name: str
    ops: frozenset[str]
    why: str
    fix: str


UNREADABLE = (
    Unreadable(
        "dynamic quantization",
        frozenset({*DYNAMIC, f"{MICROSOFT}::MatMulIntegerToFloat"}),
        "its activation ranges are computed for every input, so there are none to deploy",
        "quantize the float model statically (with calibration data), or train it with "
        "fake quantization",
    ),
    Unreadable(
        "block floating point",
        frozenset(
            {
                *("com.amd.quark::BFPQuantizeDequantize", "com.amd.quark::MXQuantizeDequantize"),
                *("com.vai.quantize::BFPFixNeuron", "com.vai.quantize::MXFixNeuron"),
            }
        ),
        "its exponents are shared by blocks and computed at run time; this is not an integer grid",
        "quantize the float model to integers (int8, int16) or FP8 instead",
    ),
)
"""Operators that are recognised and rejected."""


def quantizes(domain: str, op: str) -> bool:
    """Whether an operator of any dialect quantizes, dequantizes or computes with codes."""
    domain = "" if domain == "ai.onnx" else domain
    name = f"{domain}::{op}" if domain else op
    return (
        name in (*QDQ, *SUMS, *QUANTIZERS, openvino.FAKE_QUANTIZE, *_BLOCKS)
        or op in (*mqbench.OPERATORS, mqbench.LOGARITHMIC)
        or (domain in qonnx.DOMAINS and op in _QONNX)
        or find(domain, op) is not None
        or any(name in kind.ops for kind in UNREADABLE)
    )


_FLOAT8_ARITHMETIC = Unreadable(
    "arithmetic on float8 tensors",
    frozenset(),
    "ONNX has no operator that multiplies float8 values without scales, and no runtime runs it",
    "quantize the float model to FP8 with QuantizeLinear/DequantizeLinear and scales",
)


def unreadable(model: Model) -> Iterator[tuple[gs.Node, Unreadable]]:
    """The nodes of `model` that quantize in a way that cannot be read."""
    kinds = {op: kind for kind in UNREADABLE for op in kind.ops}
    for node in model.nodes(*kinds):
        yield node, kinds[op_name(node)]
    for node in model.nodes(*LINEAR_OPS):
        weight = node.inputs[1] if len(node.inputs) > 1 else None
        if isinstance(weight, gs.Constant) and np.dtype(weight.dtype).name.startswith("float8"):
            yield node, _FLOAT8_ARITHMETIC


def check_readable(model: Model) -> None:
    """Raise if part of the quantization cannot be read: a model is read whole or not at all."""
    found = list(unreadable(model))
    if not found:
        return
    node, kind = found[0]
    same = sum(other is kind for _, other in found)
    others = f" and {same - 1} more" if same > 1 else ""
    raise UnsupportedModelError(
        f"{describe(node)}{others}: {kind.name} ({op_name(node)}) cannot be read: {kind.why}",
        fix=kind.fix,
    )


HOOKS.check_nodes = lambda model: check_nodes(model.nodes(), own_forms(), quantizes)
