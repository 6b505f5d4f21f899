"""The canonical form to QuantizeLinear/DequantizeLinear.

    activation   x -> Q -> [Clip] -> DQ             Clip if the range is narrower than the type
    weight       codes -> DQ                        or, with weights=float, W -> Q -> DQ
    bias row     int32 codes -> DQ                  for rows of the table, unless bias=float

Every pair has a scale and a zero point of its own (onnxruntime refuses to load some models whose
pairs share them). One scale for a whole tensor is a scalar; scales=vector makes it a vector of one,
for targets that read only vectors. Codes are stored in the smallest type that contains the range;
8 bits can be forced, for runtimes without 4-bit kernels. A range that the written nodes do not show
(-127..127 of stored codes, 4 bits in int8, a clamp of floats) is kept in the metadata of the
DequantizeLinear, for read-qdq. float8 needs opset 19.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.bias_readers import bias_uses
from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.canonical.quantized_weights import clamp
from onnxq.edit import constant, new_node, replace_by_node, set_input, variable
from onnxq.errors import PassError
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.graph.dequantized import codes_of, unread
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import QType
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, add_metadata

Scales = Literal["scalar", "vector"]
"""The shape of one scale for a whole tensor."""


@dataclass(frozen=True)
class ToQdq(Pass):
    """Write every FakeQuantize as QuantizeLinear/DequantizeLinear."""

    name: ClassVar[str] = "to-qdq"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    weights: Literal["stored", "float"] = "stored"
    bias: Literal["int32", "float"] = "int32"
    pack: Literal["always", "blocked", "never"] = "always"
    opset: int | None = None
    scales: Scales = "scalar"

    def run(self, model: Model, trace: Trace) -> None:
        if self.opset is not None:
            model.require_opset(self.opset, "required by to-qdq{opset}")
        for node in model.nodes(FAKE_QUANTIZE):
            params = fake_quantize.params_of(node)
            is_weight = is_constant(node.inputs[0])
            trace.rewrote(node, str(params.qtype))
            if is_weight and self.weights == "stored":
                self._stored(node, params, model)
            else:
                self._pair(node, params, is_weight, model)
        if self.bias == "int32":
            self._biases(model, trace)
        model.qparams.rows = []  # the nodes state everything now

    # -- weights ----------------------------------------------------------------------------

    def _stored(self, node: gs.Node, params: QParams, model: Model) -> None:
        kind = self._storage(params)
        weight = unread(node.inputs[0])
        assert weight is not None
        codes = codes_of(weight, params, kind.dtype)
        stored = constant(model, f"{node.inputs[0].name}.{kind}", codes)
        inputs = [stored, *_constants(node, params, kind, model, self.scales)]
        _finish(node, inputs, params, _is_narrow(params, kind), model)

    def _storage(self, params: QParams) -> QType:
        if self.pack == "always" or (self.pack == "blocked" and params.block):
            return params.qtype
        return fake_quantize.container(params.qtype)

    # -- activations ------------------------------------------------------------------------

    def _pair(self, node: gs.Node, params: QParams, is_weight: bool, model: Model) -> None:
        kind = self._storage(params)
        x, base = node.inputs[0], node.name or node.outputs[0].name
        if _is_narrow(params, kind):
            kind = fake_quantize.container(params.qtype)
        narrow = _is_narrow(params, kind)
        if narrow and is_weight:
            # A float weight can be clamped here and now.
            value = unread(x)
            assert value is not None
            inside, moved = clamp(params, value)
            if moved:
                x = constant(model, f"{x.name}.clamped", inside)
        elif narrow and kind.bits == 16:
            x = _clamp_float(x, params, node, model)
        scale, zero_point = _constants(node, params, kind, model, self.scales)
        codes = variable(model, f"{base}.codes", like=None)
        inputs, attrs = [x, scale, zero_point], _attrs(params)
        name = f"{base}.quantize"
        new_node(model, "QuantizeLinear", inputs, [codes], name=name, attrs=attrs, instead_of=node)
        clips = narrow and not is_weight and kind.bits == 8
        if clips:
            model.require_opset(13, "Clip of 8-bit codes (a range narrower than the type)")
            low = constant(model, f"{base}.lo", np.array(params.lo, kind.dtype))
            high = constant(model, f"{base}.hi", np.array(params.hi, kind.dtype))
            inputs, codes = [codes, low, high], variable(model, f"{base}.clipped", like=None)
            new_node(model, "Clip", inputs, [codes], name=f"{base}.clip", instead_of=node)
        _finish(node, [codes, scale, zero_point], params, narrow and not clips, model)

    # -- biases -----------------------------------------------------------------------------

    def _biases(self, model: Model, trace: Trace) -> None:
        for row, tensor, bias, uses in bias_uses(model):
            base, kind, shape = row.tensor, row.qtype, _shape(row, self.scales)
            scale = constant(model, f"{base}.scale", row.scale.astype(bias.dtype).reshape(shape))
            zeros = row.zero_point.astype(kind.dtype).reshape(shape)
            inputs = [
                constant(model, f"{base}.{kind}", row.quantize(bias, kind.dtype)),
                scale,
                constant(model, f"{base}.zero_point", zeros),
            ]
            out = variable(model, f"{base}.dequantized", like=tensor)
            for node, index in uses:
                set_input(node, index, out)
            _require_opset(model, row, kind, scale)
            name, attrs = f"{base}.dequantize", _attrs(row)
            made = new_node(model, "DequantizeLinear", inputs, [out], name=name, attrs=attrs)
            if _is_narrow(row, kind):
                _state_range(made, row)
            trace.rewrote(f"'{base}'", f"{kind} bias")


def _clamp_float(x: gs.Tensor, params: QParams, node: gs.Node, model: Model) -> gs.Tensor:
    """Clamp before quantizing: runtimes have no Clip for 16-bit codes."""
    base = node.name or node.outputs[0].name
    if params.axis is not None:
        raise PassError(
            f"tensor '{params.tensor}': a 16-bit range of {params.lo}..{params.hi} per channel "
            "cannot be written as QDQ",
            fix="use the full range of the type, or one scale per tensor",
        )
    low, high = (np.asarray(v, x.dtype or np.float32) for v in params.range)
    model.require_opset(11, "Clip with bounds as inputs")
    out = variable(model, f"{base}.clamped", like=x)
    bounds = [constant(model, f"{base}.min", low), constant(model, f"{base}.max", high)]
    new_node(model, "Clip", [x, *bounds], [out], name=f"{base}.clamp", instead_of=node)
    return out


def _finish(
    node: gs.Node, inputs: list[gs.Tensor], params: QParams, state_range: bool, model: Model
) -> None:
    """Let a DequantizeLinear produce the output of the FakeQuantize, under the same name."""
    made = replace_by_node(node, "DequantizeLinear", inputs, model, _attrs(params))
    if state_range:
        _state_range(made, params)


def _state_range(node: gs.Node, params: QParams) -> None:
    add_metadata(node, {QUANT_MIN: str(params.lo), QUANT_MAX: str(params.hi)})


def _is_narrow(params: QParams, kind: QType) -> bool:
    """Whether the codes do not use the whole type they are stored in."""
    return (params.lo, params.hi) != (kind.lo, kind.hi)


def _attrs(params: QParams) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    if params.axis is not None:
        attrs["axis"] = params.axis
    if params.block:
        attrs["block_size"] = params.block
    return attrs


def _constants(
    node: gs.Node, params: QParams, kind: QType, model: Model, scales: Scales
) -> tuple[gs.Constant, gs.Constant]:
    """Scale and zero point that only this pair reads."""
    base = node.name or node.outputs[0].name
    scale, zero_point = node.inputs[1], node.inputs[2]
    shape = _shape(params, scales)
    own = isinstance(scale, gs.Constant) and len(scale.outputs) == 1
    if not own or tuple(scale.shape) != shape:
        values = params.scale.astype(scale.dtype or np.float32)
        scale = constant(model, f"{base}.scale", values.reshape(shape))
    own = isinstance(zero_point, gs.Constant) and len(zero_point.outputs) == 1
    if not own or zero_point.dtype != kind.dtype or tuple(zero_point.shape) != shape:
        zero = params.zero_point.astype(kind.dtype)
        zero_point = constant(model, f"{base}.zero_point", zero.reshape(shape))
    _require_opset(model, params, kind, scale)
    return scale, zero_point


def _shape(params: QParams, scales: Scales) -> tuple[int, ...]:
    """The shape that scale and zero point are written in."""
    return params.scale.shape or ((1,) if scales == "vector" else ())


def _require_opset(model: Model, params: QParams, kind: QType, scale: gs.Constant) -> None:
    half = scale.dtype == np.float16
    if model.opset >= max(kind.opset, 21 if params.block else 19 if half else 13):
        return  # nearly always, without building messages
    what = f"tensor '{params.tensor}'"
    if kind.opset > 10:
        model.require_opset(kind.opset, f"{kind} QuantizeLinear/DequantizeLinear ({what})")
    if params.block:
        model.require_opset(21, f"one scale per block ({what})")
    elif params.axis is not None:
        model.require_opset(13, f"one scale per channel ({what})")
    if half:
        model.require_opset(19, f"float16 scale ({what})")
    model.require_opset(10, f"QuantizeLinear/DequantizeLinear ({what})")
