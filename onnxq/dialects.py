"""The dialects of quantized ONNX: which pass reads each, and what no pass can read.

A reader turns what it knows of its dialect into the canonical form and leaves the rest alone, so
all of them run on every model, in this order, and files that mix dialects need no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq import mqbench, openvino, qonnx
from onnxq.edit import describe
from onnxq.errors import UnsupportedModelError
from onnxq.graph import Model, domain_of
from onnxq.pass_ import Trace
from onnxq.qdq_params import DEQUANTIZE, QUANTIZE
from onnxq.qoperators import MICROSOFT, SUMS, find
from onnxq.quantizers import QUANTIZERS
from onnxq.weight_axis import LINEAR_OPS

READERS: Mapping[str, str] = {
    "read-ppq": "",
    "correct-opset": "",
    "read-mqbench": "MQBench",
    "read-qonnx": "QONNX",
    "read-openvino": "OpenVINO FakeQuantize",
    "read-matmul-nbits": "MatMulNBits",
    "read-composed": "composed (Div, Round, Clip, Mul)",
    "read-qoperator": "QOperator",
    "read-qdq": "QDQ",
}
"""The passes that bring any model to the canonical form, in order, and the dialect each reads.

The first two mend what keeps a runtime from loading the file: private operators, then an opset
stamp that does not know what these have become.
Integer operators become Q/DQ around float ones, so that reader stands before the one of Q/DQ.
"""

_QDQ = (*QUANTIZE, *DEQUANTIZE)
_QONNX = {"Quant", "BipolarQuant", "Trunc"}
_BLOCKS = (f"{MICROSOFT}::MatMulNBits", f"{MICROSOFT}::GatherBlockQuantized")


@dataclass(frozen=True)
class Unreadable:
    """A construct that quantizes in a way the canonical form does not have."""

    name: str
    ops: frozenset[str]
    why: str
    fix: str


UNREADABLE = (
    Unreadable(
        "dynamic quantization",
        frozenset(
            {
                "DynamicQuantizeLinear",
                "com.microsoft::DynamicQuantizeMatMul",
                "com.microsoft::DynamicQuantizeLSTM",
                "com.microsoft::MatMulIntegerToFloat",
            }
        ),
        "its activation ranges are computed anew for every input, so there are none to deploy",
        "quantize the float model statically (with calibration data), or train it with "
        "fake quantization",
    ),
    Unreadable(
        "block floating point",
        frozenset(
            {
                "com.amd.quark::BFPQuantizeDequantize",
                "com.amd.quark::MXQuantizeDequantize",
                "com.vai.quantize::BFPFixNeuron",
                "com.vai.quantize::MXFixNeuron",
            }
        ),
        "its exponents are shared by blocks and found at run time; that is no integer grid",
        "quantize the float model to integers (int8, int16) or FP8 instead",
    ),
)
"""What is recognised and refused; QLSTM and the like are simply not among the readers' ops."""


def op_name(node: gs.Node) -> str:
    """The operator with its domain, as users write it."""
    return f"{domain_of(node)}::{node.op}" if domain_of(node) else str(node.op)


def quantizes(domain: str, op: str) -> bool:
    """Whether an operator of any dialect quantizes, dequantizes or computes with codes."""
    domain = "" if domain == "ai.onnx" else domain
    name = f"{domain}::{op}" if domain else op
    return (
        name in (*_QDQ, *SUMS, *QUANTIZERS, openvino.FAKE_QUANTIZE, *_BLOCKS)
        or op in mqbench.OPERATORS
        or op == mqbench.LOGARITHMIC
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
    """Raise where part of the quantization cannot be read: a model is read whole or not at all."""
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


def found(ops: Sequence[str], traces: Sequence[Trace]) -> list[str]:
    """The dialects of a model, from its operators and what the readers did to it."""
    names = ["canonical"] if any(op.startswith("onnxq::FakeQuantize") for op in ops) else []
    for trace in traces:
        dialect = READERS.get(trace.name)
        if not dialect or not (trace.rewrites or trace.skips):
            continue
        if trace.name == "read-qdq":
            # Readers before it write Q/DQ of their own.
            owners = {op.rpartition("::")[0]: None for op in _QDQ if op in ops}
            names += [f"{dialect} ({owner})" if owner else dialect for owner in owners]
        else:
            names.append(dialect)
    names += [f"{kind.name} (not readable)" for kind in UNREADABLE if kind.ops & set(ops)]
    return names
