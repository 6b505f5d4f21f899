"""Move logarithmic quantizers after operators that have none on NNIE.

    FakeQuantizeLog(x) -> Flatten -> Gemm    becomes    x -> Flatten -> FakeQuantizeLog -> Gemm

Flatten and Reshape only move values, and Relu keeps those of one sign: positive values are on the
same grid, negative ones become 0, which is on it. So the order does not matter, and the quantizer
ends at an input that NNIE has a number for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG, data_max_of, is_logarithmic, make
from onnxq.edit import insert, producer, set_input, users
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import is_constant
from onnxq.operators.traits import MOVES
from onnxq.pass_ import Pass, Trace
from onnxq.side_files.nnie_inputs import UNWRITABLE
from onnxq.storage.exporter import nodes_with_bodies

_TRANSPARENT = UNWRITABLE & (MOVES | {"Relu"})


@dataclass(frozen=True)
class SinkLogQuantizers(Pass):
    """Move logarithmic quantizers after Flatten, Relu and Reshape."""

    name: ClassVar[str] = "sink-log-quantizers"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        if not model.nodes(FAKE_QUANTIZE_LOG):
            return
        for node in nodes_with_bodies(model.graph):
            if domain_of(node) or node.op not in _TRANSPARENT:
                continue
            quantizer = producer(node.inputs[0], FAKE_QUANTIZE_LOG)
            if quantizer is None or is_constant(quantizer.inputs[0]):
                continue
            reach = data_max_of(quantizer)
            set_input(node, 0, quantizer.inputs[0])
            if not _is_rounded(node.outputs[0], reach, model):
                _round(model, node.outputs[0], reach)
            trace.rewrote(node, f"'{node.outputs[0].name}' is quantized instead of its input")


def _is_rounded(tensor: gs.Tensor, reach: float, model: Model) -> bool:
    """Whether all uses of `tensor` read it on this grid already."""
    return not model.is_output(tensor) and all(
        is_logarithmic(node) and data_max_of(node) == reach for node, _ in users(tensor)
    )


def _round(model: Model, tensor: gs.Tensor, reach: float) -> None:
    insert(model, tensor, lambda x, y, graph: make(model, x, y, reach, graph))
