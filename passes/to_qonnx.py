"""The canonical form to QONNX: every FakeQuantize becomes a Quant.

    FakeQuantize(x, s, z) over lo..hi    Quant(x, s, z, b), signed and narrow as lo..hi say
    bias row of the table                Quant of the constant bias, 32 bits, unless bias=float

QONNX specifies a range by its number of bits, narrow or not: -8..7, -7..7, 0..15 and 0..14 are the
4-bit ones. Other ranges, one scale per block, and types other than float32 cannot be written. All
of them are refused in one error that names them. Scales per channel are shaped to broadcast
([C,1,1,1]), which requires the rank of the tensor. Codes of a signed type that start at 0 are
written without sign; metadata keeps the type.

Quant adds the zero point before it rounds. If that would move a code of a constant, the constant is
put on the grid first. If an activation has a zero point other than 0, inputs half way between two
codes may get the other neighbour, which the trace notes: with such zero points this writer is not
exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.bias_readers import BiasUse, bias_uses
from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.dialects import qonnx
from onnxq.dialects.writable import check_writable, no_broadcast, no_plain_grid
from onnxq.edit import constant, new_node, new_values, remove, set_input, variable
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.graph.dequantized import Values, loaded, unread, value_parts
from onnxq.operators.broadcast_shape import rank_of, spread
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams, Role
from onnxq.storage.node_metadata import QUANT_TYPE, add_metadata


@dataclass(frozen=True)
class ToQonnx(Pass):
    """Write every FakeQuantize as QONNX's Quant."""

    name: ClassVar[str] = "to-qonnx"
    needs_canonical: ClassVar[bool] = True

    bias: Literal["int32", "float"] = "int32"

    def run(self, model: Model, trace: Trace) -> None:
        nodes = [(node, fake_quantize.params_of(node)) for node in model.nodes(FAKE_QUANTIZE)]
        biases = bias_uses(model) if self.bias == "int32" else []
        tensors = [(params, node.inputs[0], node.inputs[1].dtype) for node, params in nodes]
        tensors += [(use.row, use.tensor, use.value.dtype) for use in biases]
        check_writable(
            "QONNX",
            ((params, _problem(params, tensor, dtype)) for params, tensor, dtype in tensors),
            fix="use float32, full or narrow ranges of 2 to 16 bits, and one scale per tensor or "
            "channel; to-qdq writes everything",
        )
        shifted: list[str] = []
        for node, params in nodes:
            if np.any(params.zero_point) and not is_constant(node.inputs[0]):
                shifted.append(params.tensor)
            trace.rewrote(node, str(params.qtype))
            _write(node, params, model)
        for use in biases:
            _write_bias(use, model)
            trace.rewrote(f"'{use.row.tensor}'", f"{use.row.qtype} bias")
        if shifted:
            names = ", ".join(f"'{name}'" for name in shifted)
            trace.note(
                f"{names}: the zero point is not 0. QONNX adds it before rounding, so inputs "
                "half way between two codes may round to the other neighbour there"
            )
        if nodes or biases:
            model.opsets.setdefault(qonnx.DOMAIN, 1)
            # The nodes state everything now, except for biases that stay float.
            model.qparams.rows = [] if self.bias == "int32" else model.qparams.of(Role.BIAS)


def _problem(params: QParams, tensor: gs.Tensor, dtype: object) -> str:
    assert params.lo is not None and params.hi is not None
    if why := no_plain_grid(params):
        return why
    if dtype != np.float32:
        return f"it is {np.dtype(str(dtype))}, but Quant is float32"
    if qonnx.bits_of(params.lo, params.hi, params.lo < 0) is None:
        return f"the range {params.lo}..{params.hi} is neither full nor narrow"
    return no_broadcast(params, tensor)


def _write(node: gs.Node, params: QParams, model: Model) -> None:
    x, out = node.inputs[0], node.outputs[0]
    value = unread(x)
    if value is not None and not _makes_the_same(value, params):
        x = new_values(model, x, params.fake(loaded(value)), node)
    base = node.name or out.name
    remove(node, model)
    _quant(model, x, out, params, base, node)


def _makes_the_same(value: Values, params: QParams) -> bool:
    """Whether Quant and FakeQuantize give a constant the same values."""
    assert params.lo is not None and params.hi is not None
    for at, part in value_parts(value):
        scale, zero = params.block_of(value.shape, at)
        made = qonnx.quant(
            part, scale, zero.astype(np.float32), params.lo, params.hi, qonnx.HALF_EVEN
        )
        if not np.array_equal(made, params.fake_block(part, value.shape, at)):
            return False
    return True


def _write_bias(use: BiasUse, model: Model) -> None:
    out = variable(model, f"{use.row.tensor}.quantized", like=use.tensor)
    for node, index in use.uses:
        set_input(node, index, out)
    _quant(model, use.tensor, out, use.row, f"{use.row.tensor}.quantize")


def _quant(
    model: Model,
    x: gs.Tensor,
    out: gs.Tensor,
    params: QParams,
    base: str,
    instead_of: gs.Node | None = None,
) -> None:
    assert params.lo is not None and params.hi is not None
    signed = params.lo < 0
    found = qonnx.bits_of(params.lo, params.hi, signed)
    assert found is not None
    bits, narrow = found
    zeros = params.zero_point.astype(np.float32)
    same = params.axis is None or np.all(zeros == zeros[0])
    rank = rank_of(x)
    inputs = [x]
    for name, value in (
        ("scale", spread(params.scale, params.axis, rank)),
        ("zero_point", zeros.reshape(-1)[0] if same else spread(zeros, params.axis, rank)),
        ("bits", np.array(bits, np.float32)),
    ):
        inputs.append(constant(model, f"{base}.{name}", value))
    attrs = {"signed": int(signed), "narrow": int(narrow), "rounding_mode": qonnx.HALF_EVEN}
    op = f"{qonnx.DOMAIN}::Quant"
    made = new_node(model, op, inputs, [out], name=base, attrs=attrs, instead_of=instead_of)
    if params.qtype.signed != signed:
        add_metadata(made, {QUANT_TYPE: str(fake_quantize.container(params.qtype))})
