"""Writing the canonical quantizers with either exporter of torch.

    onnxq::FakeQuantize(x, scale, zero_point) {quant_min, quant_max, axis, block_size}
    onnxq::FakeQuantizeLog(x, data_max)

The TorchScript exporter asks an autograd function for its symbol, the dynamo exporter takes
`torch.onnx.ops.symbolic`. The zero point is an initializer of the type that holds the codes.
TorchScript has no uint16: there the initializer stays int32 until `type_zero_points` is applied
to the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper
from torch import Tensor

from onnxq.canonical.fake_quantize import DOMAIN, FAKE_QUANTIZE, OP
from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG
from torch_bridge.arithmetic.grid import Grid

_ONNX_TYPE = {
    torch.int8: TensorProto.INT8,
    torch.uint8: TensorProto.UINT8,
    torch.int16: TensorProto.INT16,
}


def script_node(g: Any, x: Any, scale: Any, zero_point: Any, grid: Grid) -> Any:
    """The node in TorchScript's graph."""
    stored = grid.stored_type()
    if stored in _ONNX_TYPE:  # folded by the exporter, since zero points are buffers
        zero_point = g.op("Cast", zero_point, to_i=_ONNX_TYPE[stored])
    typed = {f"{key}_i": value for key, value in grid.attributes().items()}
    node = g.op(FAKE_QUANTIZE, x, scale, zero_point, **typed)
    node.setType(x.type())
    return node


def script_log_node(g: Any, x: Any, data_max: Any) -> Any:
    """The logarithmic node in TorchScript's graph."""
    node = g.op(FAKE_QUANTIZE_LOG, x, data_max)
    node.setType(x.type())
    return node


def is_export() -> bool:
    """Whether an ONNX exporter, or torch.export, is recording: the graph is for inference."""
    # TorchScript's exporter traces; asked in this order since asking `torch.onnx` is slow.
    return torch.compiler.is_exporting() or (
        torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        and torch.onnx.is_in_onnx_export()
    )


def is_dynamo_export() -> bool:
    """Whether torch.onnx.export(dynamo=True) is tracing."""
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def dynamo_node(x: Tensor, scale: Tensor, zero_point: Tensor, grid: Grid) -> Tensor:
    """The node in dynamo's graph."""
    inputs = (x, scale, zero_point.to(grid.stored_type()))
    return torch.onnx.ops.symbolic(
        FAKE_QUANTIZE, inputs, {**grid.attributes()}, dtype=x.dtype, shape=x.shape, version=1
    )


def dynamo_log_node(x: Tensor, data_max: Tensor) -> Tensor:
    """The logarithmic node in dynamo's graph."""
    return torch.onnx.ops.symbolic(
        FAKE_QUANTIZE_LOG, (x, data_max), dtype=x.dtype, shape=x.shape, version=1
    )


def type_zero_points(proto: onnx.ModelProto) -> None:
    """Turn the int32 zero points that TorchScript left into uint16, in place.

    An initializer may be shared, also with nodes of other kinds, so each gets a typed twin.
    """
    constants = {i.name: i for i in proto.graph.initializer}
    aliases = {n.output[0]: n.input[0] for n in proto.graph.node if n.op_type == "Identity"}
    for node in proto.graph.node:
        if (node.domain, node.op_type) != (DOMAIN, OP):
            continue
        name = node.input[2]
        while name in aliases:
            name = aliases[name]
        value = constants.get(name)
        if value is None or value.data_type != TensorProto.INT32:
            continue
        twin = f"{name}.uint16"
        if twin not in constants:
            typed = numpy_helper.to_array(value).astype(np.uint16)
            constants[twin] = proto.graph.initializer.add()
            constants[twin].CopyFrom(numpy_helper.from_array(typed, twin))
        node.input[2] = twin
    used = {name for node in proto.graph.node for name in node.input}
    used.update(output.name for output in proto.graph.output)
    for twin in [name for name in constants if name.endswith(".uint16")]:
        plain = twin.removesuffix(".uint16")
        if plain in constants and plain not in used:
            proto.graph.initializer.remove(constants[plain])
