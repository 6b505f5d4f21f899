"""Remove the quantizers from the float graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.bias_readers import bias_readers_followed
from onnxq.analysis.float_graph import FloatGraph, FloatTensor, Quantizer
from onnxq.edit import replace
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class RemoveFakeQuant(Pass):
    """Take all quantizers out of the graph, leaving the float network.

    Their parameters are lost unless 'collect-qparams' wrote them down before.
    """

    name: ClassVar[str] = "remove-fake-quant"
    needs_canonical: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("collect-qparams",)

    def run(self, model: Model, trace: Trace) -> None:
        with bias_readers_followed(model):
            for tensor in FloatGraph(model).quantized:
                for quantizer in _in_order(tensor):
                    trace.rewrote(quantizer.node)
                    _keep_type(quantizer.node)
                    replace(quantizer.node, by=quantizer.node.inputs[0], model=model)


def _in_order(tensor: FloatTensor) -> list[Quantizer]:
    """The quantizers: first those on the path to the one that names the float tensor.

    The producer then takes the name that the table knows.
    """
    path = tensor.heir.path() if tensor.heir is not None else []
    done = set(path)
    return path + [q for q in (*tensor.quantizers, *tensor.unread) if q not in done]


def _keep_type(node: gs.Node) -> None:
    """Declare a tensor as float16 if only the quantizer's scale shows its type."""
    x = node.inputs[0]
    if isinstance(x, gs.Variable) and x.dtype is None and node.inputs[1].dtype == np.float16:
        x.dtype = np.dtype(np.float16)
