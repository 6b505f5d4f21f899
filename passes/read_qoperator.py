"""Integer operators to float operators between QuantizeLinear and DequantizeLinear.

    QLinearConv, QLinearMatMul, QGemm, QLinearAdd ...   DQ -> Conv, MatMul, Gemm, Add ... -> Q
    Q -> Reshape, MaxPool, Concat ... on codes          Q -> DQ -> Reshape ... -> Q
    MatMulInteger/ConvInteger -> Cast -> Mul            DQ -> MatMul/Conv, the scale in the weight

Each is rewritten by itself; 'read-qdq' then reads the pairs. Dynamic quantization has no
parameters to read, so it stays, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from onnxq.dialects.code_nodes import CodeNodes
from onnxq.dialects.integer_sums import read_sums
from onnxq.dialects.moves_on_codes import move_layout
from onnxq.dialects.node_rewrite import attempt
from onnxq.dialects.qoperator_lowering import lower
from onnxq.graph import Model, domain_of
from onnxq.operators.integer_operators import BLOCKED_DOMAIN, DYNAMIC, QOPERATORS, find, spellings
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class ReadQoperator(Pass):
    """Write integer operators (QLinearConv, QGemm ...) as float operators between Q and DQ."""

    name: ClassVar[str] = "read-qoperator"
    dialect: ClassVar[str] = "QOperator"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        make = CodeNodes(model)
        for node in model.nodes(*(s for op in QOPERATORS for s in spellings(op))):
            operator = find(domain_of(node), node.op)
            assert operator is not None
            attempt(node, trace, partial(lower, node, operator, make))
        move_layout(make, trace)
        for node in model.nodes(*(f"{BLOCKED_DOMAIN}::{op}" for op in QOPERATORS)):
            trace.skip(
                node,
                "its weights are stored in blocks for the CPU that wrote the file; use the model "
                "as it was before onnxruntime optimised it",
            )
        for node in model.nodes(*DYNAMIC):
            trace.skip(
                node,
                "dynamic quantization: ranges are computed at run time. Quantize statically "
                "(with calibration data), or use the float model",
            )
        read_sums(make, trace)
