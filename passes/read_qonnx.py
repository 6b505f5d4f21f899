"""QONNX's Quant, IntQuant, BipolarQuant and Trunc to the canonical form.

    Quant(x, s, z, b), mode ROUND    FakeQuantize(x, s, z) over the range of b bits
    Quant of a constant              the same; if another mode gives other codes, the constant is
                                     put on the grid first, and no code can move
    Quant of a bias (or of any       the constant on the grid + a row of the table
      constant, b > 16)
    BipolarQuant of a constant       {-s, s} on the grid, FakeQuantize over -1..1
    Trunc                            of a constant like Quant; of quantized data if trying all its
                                     values shows that a FakeQuantize gives the same

QONNX adds the zero point before it rounds. With z = 0, as every exporter writes it, that is
FakeQuantize to the bit; otherwise float32 may round x / s + z onto a half, and halves go to the
other neighbour if z is odd. Such activations are read with a note. Quantizers without an integer
grid (a fractional zero point, another rounding mode at run time, two-valued activations) are
declined.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.bias_readers import read_as_bias
from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.dialects import qonnx
from onnxq.dialects.node_rewrite import Declined, attempt, known_input
from onnxq.edit import drop_domains, inputs_of, new_values, producer, remove, replace
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.broadcast_shape import per_channel, rank_of
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.storage.node_metadata import type_of_codes
from passes.read_composed import Ties, note_ties

QUANT = tuple(f"{domain}::{op}" for domain in qonnx.DOMAINS for op in ("Quant", "IntQuant"))
BIPOLAR = tuple(f"{domain}::BipolarQuant" for domain in qonnx.DOMAINS)
FLOAT_QUANT = tuple(f"{domain}::FloatQuant" for domain in qonnx.DOMAINS)
TRUNC = tuple(f"{domain}::Trunc" for domain in qonnx.DOMAINS)


@dataclass(frozen=True)
class ReadQonnx(Pass):
    """Read QONNX's Quant, BipolarQuant and Trunc as FakeQuantize."""

    name: ClassVar[str] = "read-qonnx"
    dialect: ClassVar[str] = "QONNX"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        ties: Ties = defaultdict(list)
        for ops, read in (
            (QUANT, partial(_read_quant, ties=ties)),
            (BIPOLAR, _read_two_values),
            (TRUNC, _read_trunc),  # last: they look at the quantizers before them
        ):
            for node in model.nodes(*ops):
                attempt(node, trace, partial(read, node, model))
        for node in model.nodes(*FLOAT_QUANT):
            trace.skip(node, "its codes are small floats, not integers")
        note_ties(ties, trace)
        if trace.rewrites:
            drop_domains(model, *qonnx.DOMAINS)


# -- Quant ------------------------------------------------------------------------------------


def _read_quant(node: gs.Node, model: Model, ties: Ties) -> str:
    x, scale, zero = node.inputs[0], _known(node, 1, "scale"), _known(node, 2, "zero point")
    mode = _mode(node, qonnx.HALF_EVEN)
    signed, bits = _flag(node, "signed", 1), _bits(node, 3)
    if bits == 1 and signed:
        if np.any(zero):
            raise Declined("it has two values (1 bit, signed) and a zero point")
        return _read_two_values(node, model)
    lo, hi = qonnx.quant_range(bits, signed, _flag(node, "narrow", 0))
    value = array(x)
    wide = bits > 16 and value is not None
    params = _params(node, scale, zero, lo, hi, wide=wide)
    if value is not None and (wide or (value.ndim == 1 and read_as_bias(node.outputs[0], model))):
        return _read_bias(node, value, params, mode, model)
    if value is not None:
        result = qonnx.quant(value, scale, zero, lo, hi, mode)
        return _constant_on_grid(node, value, result, params, mode, model)
    if qonnx.ROUNDING[mode] is not np.rint:
        raise Declined(
            f"it rounds with {mode} at run time; integer hardware and ONNX round half to even"
        )
    if np.any(params.zero_point):
        ties["QONNX adds the zero point before it rounds"].append(x.name)
    _fake_quantize(node, x, params, model)
    return _kind(params)


def _read_bias(node: gs.Node, value: Array, params: QParams, mode: str, model: Model) -> str:
    """Make the quantized bias a constant: a bias is not simulated by a node."""
    assert params.lo is not None and params.hi is not None
    scale, zero = params.broadcast(value.shape)
    on_grid = qonnx.quant(value, scale, zero, params.lo, params.hi, mode).astype(value.dtype)
    real = node.inputs[0]
    if not isinstance(real, gs.Constant) or value.tobytes() != on_grid.tobytes():
        real = new_values(model, real, on_grid, node)
    replace(node, real, model)
    model.qparams.add(params.with_(tensor=real.name, role=Role.BIAS))
    return f"{params.qtype} bias"


# -- two values -------------------------------------------------------------------------------


def _read_two_values(node: gs.Node, model: Model) -> str:
    """-s and s are the codes -1 and 1: a grid that has 0, too, but constants never use it."""
    value, scale = array(node.inputs[0]), _known(node, 1, "scale")
    if value is None:
        raise Declined(
            "its input is computed at run time and its two values -s, s have no code for 0; "
            "only constants can be two-valued"
        )
    params = _params(node, scale, np.zeros((), np.float32), -1, 1)
    result = qonnx.bipolar_quant(value, scale)
    return _constant_on_grid(node, value, result, params, "sign", model)


# -- Trunc ------------------------------------------------------------------------------------


def _read_trunc(node: gs.Node, model: Model) -> str:
    """Version 1 has the inputs x, s, z, bits, new bits; version 2 also a scale for the result.

    Codes of `s` lose their t lowest bits. Version 1 keeps the scale s (so values shrink by 2^t),
    does not clamp and does not specify whether codes have a sign; version 2 does all of it.
    """
    x, scale, zero = node.inputs[0], _known(node, 1, "scale"), _known(node, 2, "zero point")
    mode = _mode(node, "FLOOR")
    second = len(inputs_of(node, len(node.inputs))) > 5
    bits = _bits(node, len(node.inputs) - 1)
    if second:
        made = _known(node, 4, "output scale")
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log2(made / scale)
        if not np.all(np.isfinite(ratio)):
            raise QParamsError(
                f"tensor '{x.name}': output scale / scale is not a positive finite number",
                fix="export the model again, or recalibrate",
            )
        powers = np.unique(np.rint(ratio))
        if powers.size != 1:
            raise Declined("it drops a different number of bits in each channel")
        dropped = int(powers[0])
        lo, hi = qonnx.quant_range(bits, _flag(node, "signed", 1), _flag(node, "narrow", 0))
        zero_made = zero / np.float32(2.0**dropped)
    else:
        made, zero_made, dropped = scale, zero, _bits(node, 3) - bits
        lo, hi = qonnx.quant_range(bits, True, False)

    def trunc(values: Array) -> Array:
        codes = qonnx.truncated(values, scale, zero, 2.0**dropped, mode)
        codes = np.clip(codes, np.float32(lo), np.float32(hi)) if second else codes
        return np.asarray((codes - zero_made) * made, np.float32)

    params = _params(node, made, zero_made, lo, hi)
    value = array(x)
    if value is not None:
        return _constant_on_grid(node, value, trunc(value), params, mode, model)
    quantizer = producer(x, FAKE_QUANTIZE)
    if quantizer is None:
        raise Declined(
            f"it drops {dropped} bits of codes that come from no quantizer, so it rounds twice"
        )
    before = fake_quantize.params_of(quantizer)
    if before.axis is not None or params.axis is not None:
        raise Declined("it drops bits of codes with one scale per channel at run time")
    assert before.lo is not None and before.hi is not None
    everything = before.dequantize(np.arange(before.lo, before.hi + 1))
    if not np.array_equal(trunc(everything), params.fake(everything)):
        raise Declined(
            f"it drops {dropped} bits with {mode}; rounding half to even gives other codes"
        )
    _fake_quantize(node, x, params, model)
    return f"{_kind(params)}, equal for all {everything.size} possible inputs"


# -- shared -----------------------------------------------------------------------------------


def _params(
    node: gs.Node, scale: Array, zero: Array, lo: int, hi: int, *, wide: bool = False
) -> QParams:
    """The grid of a node; declines if it has none."""
    x = node.inputs[0]
    odd = zero[np.isfinite(zero) & (zero != np.rint(zero))]  # QParams refuses the others
    if odd.size:
        raise Declined(f"its zero point {odd.flat[0]} is not an integer")
    if lo >= hi:
        raise Declined(f"its range {lo}..{hi} has only one code")
    found = per_channel((scale, zero), rank_of(x))
    if found is None:
        raise Declined(
            f"its scale of shape {list(scale.shape)} and zero point of shape {list(zero.shape)} "
            "do not vary along one axis of its input"
        )
    (scales, zeros), axis = found
    kind = qtype("int32") if wide else type_of_codes(node, lo, hi)
    if kind is None or lo < kind.lo or hi > kind.hi:
        raise Declined(
            f"its codes {lo}..{hi} need more than "
            + ("32 bits with sign" if wide else "16 bits, which only constant biases may have")
        )
    kind = kind if wide else fake_quantize.container(kind)
    params = QParams(x.name, kind, scales, zeros, axis=axis, lo=lo, hi=hi)
    params.check_shape(x.shape)
    return params


def _constant_on_grid(
    node: gs.Node, value: Array, result: Array, params: QParams, mode: str, model: Model
) -> str:
    """FakeQuantize of a constant, which is replaced by `result` if they differ."""
    x, detail = node.inputs[0], _kind(params)
    if result.shape != value.shape:
        raise Declined(f"its parameters broadcast {list(value.shape)} to {list(result.shape)}")
    if not np.array_equal(params.fake(value), result):
        if not np.array_equal(params.fake(result), result):
            raise Declined(f"its values are not codes {params.lo}..{params.hi} of its scale")
        x = new_values(model, x, result.astype(value.dtype), node)
        detail += f", {mode} applied to the constant"
    _fake_quantize(node, x, params, model)
    return detail


def _fake_quantize(node: gs.Node, x: gs.Tensor, params: QParams, model: Model) -> None:
    out = node.outputs[0]
    name = node.name or f"{out.name}.fake_quantize"
    remove(node, model)
    fake_quantize.make(model, x, out, params, node, name=name)


def _known(node: gs.Node, index: int, what: str) -> Array:
    """A constant input in float32."""
    tensor, value = known_input(node, index, what)
    if value.dtype.kind not in "fiu":
        raise QParamsError(f"its {what} '{tensor.name}' is {value.dtype}", fix="give it as float32")
    return value.astype(np.float32)


def _bits(node: gs.Node, index: int) -> int:
    value = _known(node, index, "bit width")
    if value.size != 1:
        raise Declined("it has a bit width per channel")
    bits = float(value.reshape(()))
    if not (bits >= 1 and bits.is_integer()):
        raise Declined(f"its bit width {bits} is not a positive integer")
    if bits > 64:
        raise Declined(f"its bit width {bits:g} is larger than that of any type")
    return int(bits)


def _flag(node: gs.Node, name: str, default: int) -> bool:
    value = node.attrs.get(name, default)
    if value not in (0, 1):
        raise QParamsError(
            f"its attribute '{name}' is {value}, expected 0 or 1", fix="export it again"
        )
    return bool(value)


def _mode(node: gs.Node, default: str) -> str:
    mode = node.attrs.get("rounding_mode", default)
    name = (mode.decode() if isinstance(mode, bytes) else str(mode)).upper()
    if name not in qonnx.ROUNDING:
        raise Declined(f"its rounding mode '{mode}' is not one of {', '.join(qonnx.ROUNDING)}")
    return name


def _kind(params: QParams) -> str:
    assert params.lo is not None and params.hi is not None
    kind = fake_quantize.narrowest(params.qtype, params.lo, params.hi)
    return f"{kind} {params.lo}..{params.hi}" + (" per channel" if params.axis is not None else "")
