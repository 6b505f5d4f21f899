"""The canonical quantizers of either kind: FakeQuantize and FakeQuantizeLog, and their rows."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize, fake_quantize_log
from onnxq.edit import producer
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.op_kind import kind_of
from onnxq.operators.placement import MOVES
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.storage.domains import QUANTIZERS as QUANTIZERS

Row = QParams | LogParams
"""The row of one quantizer in a table."""


def is_quantizer(node: gs.Node | None) -> bool:
    """Whether `node` is one of the canonical quantizers."""
    return fake_quantize.is_fake_quantize(node) or fake_quantize_log.is_logarithmic(node)


def quantizer_behind(tensor: gs.Tensor, known: dict[int, gs.Node | None]) -> gs.Node | None:
    """The quantizer of the values in `tensor`, looking through operators that only move them.

    `known` is one dictionary for all calls on one graph, so that no path is followed twice.
    """
    passed: list[int] = []
    while id(tensor) not in known:
        passed.append(id(tensor))
        node = producer(tensor)
        if node is None or is_quantizer(node) or kind_of(node) not in MOVES or not node.inputs:
            found = node if is_quantizer(node) else None
            break
        tensor = node.inputs[0]
    else:
        found = known[id(tensor)]
    known.update(dict.fromkeys(passed, found))
    return found


def row_of(
    node: gs.Node,
    tensor: str | None = None,
    *,
    role: Role | None = None,
    readers: tuple[Reader, ...] | None = None,
) -> Row:
    """The row of a quantizer, validated."""
    if not fake_quantize_log.is_logarithmic(node):
        return fake_quantize.params_of(node, tensor, role=role, readers=readers)
    x, reach = node.inputs[0], fake_quantize_log.data_max_of(node)
    role = role or (Role.WEIGHT if is_constant(x) else Role.ACTIVATION)
    return LogParams(x.name if tensor is None else tensor, reach, role, readers)


def make(
    model: Model,
    source: gs.Tensor,
    result: gs.Tensor,
    row: Row,
    graph: gs.Graph,
    *,
    dtype: object = None,
) -> gs.Node:
    """Add the quantizer of `row` that makes `result` from `source`.

    `dtype` is the float type, if the tensor itself does not specify it.
    """
    if isinstance(row, LogParams):
        return fake_quantize_log.make(model, source, result, row.data_max, graph)
    return fake_quantize.make(model, source, result, row, graph, dtype=dtype)
