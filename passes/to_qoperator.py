"""The canonical form to integer operators.

    DQ -> Conv -> Q       QLinearConv
    DQ -> MatMul -> Q     QLinearMatMul
    DQ -> Gemm, Add, Mul, Concat, pooling, LeakyRelu, Sigmoid, Softmax, Where -> Q
                          onnxruntime's own QGemm, QLinearAdd ... (contrib)

Operators without an integer form, or without one for their types, stay float between Q and DQ,
with the reason. A float bias becomes int32 codes. Results may differ by one step from the float
graph, which rounds at other places.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from onnxq.dialects.node_rewrite import attempt
from onnxq.dialects.qoperator_fusion import TWINS, fuse, is_candidate
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from passes.to_qdq import ToQdq


@dataclass(frozen=True)
class ToQoperator(Pass):
    """Write quantized layers as integer operators (QLinearConv, QGemm ...), the rest as QDQ."""

    name: ClassVar[str] = "to-qoperator"
    needs_canonical: ClassVar[bool] = True

    contrib: bool = True

    def run(self, model: Model, trace: Trace) -> None:
        ToQdq().run(model, trace)
        for node in model.nodes(*TWINS):
            if is_candidate(node, self.contrib):
                attempt(node, trace, partial(fuse, node, model))
