"""Block-quantized weights of MatMul to onnxruntime's MatMulNBits.

    w -> FakeQuantize per block -> MatMul(a, .)             MatMulNBits(a, B, s, z)
    w -> FakeQuantize per block -> Gemm<transB=1>(a, .)     the same; Add its bias, if it has one

The weight is 2-D, its blocks run along the sums (axis 0 of MatMul's weight, axis 1 of the
transposed one) and have 16, 32, 64 ... codes. Codes are stored unsigned: signed ones count from
2^(bits-1) up, and metadata keeps their type and range. Other weights stay as they are, with the
reason; `to-qdq` after this pass writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.arrays.bit_packing import BITS, pack
from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.edit import (
    constant,
    describe,
    inputs_of,
    new_node,
    replace_by_node,
    users,
    variable,
)
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
            stored = _stored(node, params, weight, model)
            axis = _axis(params)
            attrs = {"K": weight.shape[axis], "N": weight.shape[1 - axis]}
            attrs |= {"bits": params.qtype.bits, "block_size": params.block}
            for layer, _ in users(node.outputs[0]):
                trace.rewrote(layer, f"{params.qtype} in blocks of {params.block}")
                made = _product(layer, [layer.inputs[0], *stored], dict(attrs), model)
                if params.qtype.signed or params.is_narrow:
                    entries = {QUANT_TYPE: str(params.qtype)}
                    entries |= {QUANT_MIN: str(params.lo), QUANT_MAX: str(params.hi)}
                    add_metadata(made, entries)
            model.opsets.setdefault("com.microsoft", 1)


def _product(
    layer: gs.Node, inputs: list[gs.Tensor], attrs: dict[str, Any], model: Model
) -> gs.Node:
    """Let MatMulNBits take the place of a layer, with an Add after it for the bias of a Gemm.

    MatMulNBits has a bias of its own, but only in later versions of onnxruntime.
    """
    bias = inputs_of(layer, 3)[2]
    if bias is None:
        return replace_by_node(layer, MATMUL, inputs, model, attrs)
    out = layer.outputs[0]
    product, name = variable(model, f"{out.name}.product", like=out), layer.name or out.name
    made = new_node(
        model, MATMUL, inputs, [product], name=f"{name}.product", attrs=attrs, instead_of=layer
    )
    replace_by_node(layer, "Add", [product, bias], model)
    return made


def _problem(node: gs.Node, params: QParams, weight: Array | None, model: Model) -> str:
    """Why a quantizer stays; '' if MatMulNBits can express it."""
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
    for layer, index in users(node.outputs[0]):
        why = _mismatch(layer, index, _axis(params))
        if why:
            return f"{describe(layer)} reads it, {why}"
    return ""


def _axis(params: QParams) -> int:
    assert params.axis is not None
    return params.axis % 2  # of a matrix, perhaps counted from the end


def _mismatch(layer: gs.Node, index: int, axis: int) -> str:
    """Why MatMulNBits does not compute the same as `layer`; '' if it does."""
    if domain_of(layer) or layer.op not in ("MatMul", "Gemm"):
        return "which is not a MatMul"
    if index != 1 or layer.inputs[0] is layer.inputs[1]:
        return "but not as its weight"
    along = 0
    if layer.op == "Gemm":
        attrs = layer.attrs
        scaled = (attrs.get("alpha", 1.0), attrs.get("beta", 1.0)) != (1.0, 1.0)
        if scaled or attrs.get("transA", 0):
            return "a Gemm that scales or transposes what it multiplies"
        along = int(attrs.get("transB", 0))
    return "" if axis == along else "whose sums do not run along its blocks"


def _stored(node: gs.Node, params: QParams, weight: Array, model: Model) -> list[gs.Tensor]:
    """Packed codes, scales and, unless they are the default, packed zero points."""
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
    return stored
