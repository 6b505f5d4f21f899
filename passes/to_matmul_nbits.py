"""Block-quantized weights of MatMul to onnxruntime's MatMulNBits.

    w -> FakeQuantize per block -> MatMul(a, .)             MatMulNBits(a, B, s, z)
    w -> FakeQuantize per block -> Gemm<transB=1>(a, .)     the same, where Gemm adds nothing

The weight is 2-D, its blocks run along the sums (axis 0 of MatMul's weight, axis 1 of the
transposed one) and have 16, 32, 64 ... codes. Codes are stored unsigned: signed ones count from
2^(bits-1) up, and metadata keeps their type and range. What does not fit stays as it is, with the
reason; `to-qdq` after this pass writes the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.arrays.bit_packing import BITS, pack
from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.edit import constant, describe, new_node, remove, users
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import array
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams
from onnxq.quant.qtypes import qtype
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, QUANT_TYPE, add_metadata

MATMUL = "com.microsoft::MatMulNBits"
_SMALLEST_BLOCK = 16


@dataclass(frozen=True)
class ToMatmulNbits(Pass):
    """Write MatMul with block-quantized weights as MatMulNBits."""

    name: ClassVar[str] = "to-matmul-nbits"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes(FAKE_QUANTIZE):
            if not node.attrs.get("block_size", 0):
                continue
            params, weight = fake_quantize.params_of(node), array(node.inputs[0])
            why = _problem(node, params, weight, model)
            if why:
                trace.skip(node, why)
                continue
            assert weight is not None
            stored, metadata = _stored(node, params, weight, model)
            for reader, _ in users(node.outputs[0]):
                trace.rewrote(describe(reader), f"{params.qtype} in blocks of {params.block}")
                _write(reader, params, stored, metadata, weight, model)
            model.opsets.setdefault("com.microsoft", 1)


def _problem(node: gs.Node, params: QParams, weight: Array | None, model: Model) -> str:
    """Why a quantizer stays; '' where MatMulNBits can hold it."""
    if weight is None:
        return "its input is computed at run time"
    if weight.ndim != 2:
        return f"its weight has {weight.ndim} dimensions, not 2"
    if params.qtype.floating or params.qtype.bits not in BITS:
        return f"its codes are {params.qtype}, not integers of 2, 4 or 8 bits"
    if params.block < _SMALLEST_BLOCK or params.block & (params.block - 1):
        return f"its blocks have {params.block} codes, not 16, 32, 64 ..."
    if model.is_output(node.outputs[0]):
        return "its result is a graph output"
    for reader, index in users(node.outputs[0]):
        why = _misfit(reader, index, _axis(params))
        if why:
            return f"{describe(reader)} reads it, {why}"
    return ""


def _axis(params: QParams) -> int:
    assert params.axis is not None
    return params.axis % 2  # of a matrix, perhaps counted from the end


def _misfit(reader: gs.Node, index: int, axis: int) -> str:
    """Why MatMulNBits is not what `reader` computes; '' where it is."""
    if domain_of(reader) or reader.op not in ("MatMul", "Gemm"):
        return "which is not a MatMul"
    if index != 1 or reader.inputs[0] is reader.inputs[1]:
        return "but not as its weight"
    along = 0
    if reader.op == "Gemm":
        attrs = reader.attrs
        scaled = (attrs.get("alpha", 1.0), attrs.get("beta", 1.0)) != (1.0, 1.0)
        if scaled or attrs.get("transA", 0) or any(t.name for t in reader.inputs[2:]):
            return "a Gemm that computes more than a product"
        along = int(attrs.get("transB", 0))
    return "" if axis == along else "whose sums do not run along its blocks"


def _stored(
    node: gs.Node, params: QParams, weight: Array, model: Model
) -> tuple[list[gs.Tensor], dict[str, str]]:
    """Packed codes, scales and, where they are not the default, packed zero points."""
    kind = qtype(f"uint{params.qtype.bits}")
    offset = kind.lo - params.qtype.lo
    codes = params.quantize(weight) + offset
    scale, zero = params.scale, params.zero_point + offset
    if _axis(params) == 0:  # rows of MatMulNBits are output channels
        codes, scale, zero = codes.T, scale.T, zero.T
    rows, count = codes.shape
    codes = np.pad(codes, ((0, 0), (0, -count % params.block)))
    base = node.inputs[0].name
    packed = pack(codes.reshape(rows, -1, params.block), kind.bits)
    stored: list[gs.Tensor] = [
        constant(model, f"{base}.{kind}", packed),
        constant(model, f"{base}.scale", scale.astype(node.inputs[1].dtype)),
    ]
    if np.any(zero != 1 << (kind.bits - 1)):
        stored.append(constant(model, f"{base}.zero_point", pack(zero, kind.bits)))
    if (params.qtype, params.lo, params.hi) == (kind, kind.lo, kind.hi):
        return stored, {}
    return stored, {
        QUANT_TYPE: str(params.qtype),
        QUANT_MIN: str(params.lo),
        QUANT_MAX: str(params.hi),
    }


def _write(
    reader: gs.Node,
    params: QParams,
    stored: list[gs.Tensor],
    metadata: dict[str, str],
    weight: Array,
    model: Model,
) -> None:
    data, out, owner = reader.inputs[0], reader.outputs[0], reader.owner
    name, axis = reader.name or out.name, _axis(params)
    attrs = {"K": weight.shape[axis], "N": weight.shape[1 - axis]}
    attrs |= {"bits": params.qtype.bits, "block_size": params.block}
    remove(reader, model)
    made = new_node(model, MATMUL, [data, *stored], [out], name=name, attrs=attrs, graph=owner)
    if metadata:
        add_metadata(made, metadata)
