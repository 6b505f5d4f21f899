"""Writing the canonical quantizers with either exporter of torch.

    onnxq::FakeQuantize(x, scale, zero_point) {quant_min, quant_max, axis, block_size}
    onnxq::FakeQuantizeLog(x, data_max)

The TorchScript exporter asks an autograd function for its symbol, the dynamo exporter takes
`torch.onnx.ops.symbolic`. The zero point is an initializer of the type that holds the codes; for
uint16, which TorchScript lacks, it is int32 until `torch_bridge.export` writes the trained one.
"""

from __future__ import annotations

from typing import Any

import torch
from onnx import TensorProto
from torch import Tensor

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
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
    # TorchScript's exporter traces. The call of `torch.onnx` is slow, so it comes last.
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
