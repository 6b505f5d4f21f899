"""The canonical op: `onnxq::FakeQuantize(x, scale, zero_point)`.

    y = (clamp(round_half_even(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale

Attributes: quant_min, quant_max, axis (used when scale is 1-D), block_size (0 = none). It is a
model-local function, so a model that contains it passes onnx.checker and runs in a stock
onnxruntime:

    q  = QuantizeLinear(x, scale, zero_point)          saturates to the type of zero_point
    c  = Clip(Cast<float>(q), quant_min, quant_max)    runtimes lack a Clip of 16-bit and float8
    y  = DequantizeLinear(CastLike(c, zero_point), scale, zero_point)

float32 represents every code of 16 bits and of float8 exactly. zero_point is int8, uint8, int16,
uint16 or a float8 type, for which rounding is to the values of that type; narrower types are 8-bit
integers with a narrow range until a writer packs them.
"""

from __future__ import annotations

import functools

import numpy as np
import onnx_graphsurgeon as gs
from onnx import FunctionProto, TensorProto, parser

from onnxq.edit import constant, describe, new_node, set_input
from onnxq.errors import PassError, QParamsError
from onnxq.graph import Model
from onnxq.graph.constants import array, is_constant
from onnxq.quant.qparams import Array, QParams, Reader, Role
from onnxq.quant.qtypes import QType, qtype
from onnxq.storage.domains import OWN

DOMAIN = OWN
OP = "FakeQuantize"
FAKE_QUANTIZE = f"{DOMAIN}::{OP}"

_MIN_OPSET = 15  # CastLike
_FIX = "the file is not a valid ONNX model: export it again"
_INTEGERS = tuple(qtype(f"{sign}int{bits}") for bits in (2, 4, 8, 16) for sign in ("", "u"))


def parsed(opset: int, text: str, doc: str) -> FunctionProto:
    """A function of the domain from ONNX text syntax; onnxruntime wants it in the model's opset."""
    header = f'<domain: "{DOMAIN}", opset_import: ["" : {opset}], doc_string: "{doc}">'
    made = parser.parse_function(header + text)
    for node in made.node:
        node.ClearField("domain")
    return made


@functools.cache
def function(opset: int, between: int = TensorProto.FLOAT) -> FunctionProto:
    """The body for models of `opset`.

    `between` is the type that codes are clipped in: the first bodies that onnxq wrote had INT32.
    """
    grid = "axis: int = @axis" + (", block_size: int = @block_size" if opset >= 21 else "")
    text = f"""
    {OP} <quant_min, quant_max, axis: int = 1, block_size: int = 0>
    (x, scale, zero_point) => (y) {{
        quant_min = Constant <value_int: int = @quant_min> ()
        quant_min_f = Cast <to = {between}> (quant_min)
        quant_max = Constant <value_int: int = @quant_max> ()
        quant_max_f = Cast <to = {between}> (quant_max)
        q = QuantizeLinear <{grid}> (x, scale, zero_point)
        f = Cast <to = {between}> (q)
        c = Clip (f, quant_min_f, quant_max_f)
        d = CastLike (c, zero_point)
        y = DequantizeLinear <{grid}> (d, scale, zero_point)
    }}"""
    doc = "Quantize to quant_min..quant_max and back; see onnxq.canonical.fake_quantize."
    return parsed(opset, text, doc)


def container(kind: QType) -> QType:
    """The type of zero_point for codes of `kind`: 8 or 16 bits."""
    if kind.bits > 16:
        raise PassError(
            f"{kind} cannot be simulated by FakeQuantize",
            fix="32-bit biases are rows of the table, made by 'quantize-bias'",
        )
    if kind.bits in (8, 16):
        return kind
    return qtype("int8" if kind.signed else "uint8")


def is_fake_quantize(node: gs.Node | None) -> bool:
    """Whether `node` is the canonical op."""
    return node is not None and node.op == OP and node.domain == DOMAIN


def make(
    model: Model,
    source: gs.Tensor,
    result: gs.Tensor,
    params: QParams,
    place: gs.Graph | gs.Node,
    *,
    name: str = "",
    dtype: object = None,
) -> gs.Node:
    """Add a FakeQuantize that makes `result` from `source`; its constants are its own.

    `place` is the graph it is added to, or the node it replaces. `dtype` is the float type, if the
    tensor itself does not specify it.
    """
    base = name or f"{source.name}.fake_quantize"
    scale, zero_point = encode(params, source.dtype if dtype is None else dtype)
    inputs = [
        source,
        constant(model, f"{base}.scale", scale),
        constant(model, f"{base}.zero_point", zero_point),
    ]
    attrs = _attributes(params)
    where = {"instead_of" if isinstance(place, gs.Node) else "graph": place}
    return new_node(model, FAKE_QUANTIZE, inputs, [result], name=base, attrs=attrs, **where)


def _attributes(params: QParams) -> dict[str, object]:
    attrs: dict[str, object] = {"quant_min": params.lo, "quant_max": params.hi}
    if params.axis is not None:
        attrs["axis"] = params.axis
    if params.block:
        attrs["block_size"] = params.block
    return attrs


def encode(params: QParams, dtype: object) -> tuple[Array, Array]:
    """Scale in the float type of the tensor and zero point in its container type."""
    zero_point = params.zero_point.astype(container(params.qtype).dtype)
    if dtype != np.float16:
        return params.scale, zero_point
    with np.errstate(over="ignore", under="ignore"):
        scale = params.scale.astype(np.float16)
    if not np.all((scale > 0) & np.isfinite(scale)):
        raise QParamsError(
            f"tensor '{params.tensor}' is float16, but its scale does not fit float16",
            fix="keep this tensor in float32, or leave it unquantized",
        )
    return scale, zero_point


def set_params(model: Model, node: gs.Node, params: QParams) -> None:
    """Give a FakeQuantize other parameters, in new constants: the old ones may be shared."""
    base = node.name or node.outputs[0].name
    scale, zero_point = encode(params, node.inputs[1].dtype)
    set_input(node, 1, constant(model, f"{base}.scale", scale))
    set_input(node, 2, constant(model, f"{base}.zero_point", zero_point))
    node.attrs = _attributes(params)


def params_of(
    node: gs.Node,
    tensor: str | None = None,
    *,
    role: Role | None = None,
    readers: tuple[Reader, ...] | None = None,
) -> QParams:
    """The parameters of a FakeQuantize, validated; errors name the tensor."""
    x = node.inputs[0]
    scale, zero_point = array(node.inputs[1]), array(node.inputs[2])
    if scale is None or zero_point is None:
        missing = node.inputs[1 if scale is None else 2]
        raise PassError(
            f"FakeQuantize {describe(node)}: '{missing.name}' is computed at run time",
            fix="run 'fold-constants' first; dynamic quantization is not supported",
        )
    for real in node.inputs[:2]:
        if real.dtype is not None and np.dtype(real.dtype).kind in "iubOSU":
            raise QParamsError(
                f"FakeQuantize {describe(node)}: '{real.name}' is {np.dtype(real.dtype)}, which "
                "is not a float type",
                fix=_FIX,
            )
    lo, hi = int(node.attrs["quant_min"]), int(node.attrs["quant_max"])
    block = int(node.attrs.get("block_size", 0))
    per_tensor = scale.ndim == 0 or (scale.size == 1 and not block)
    axis = None if per_tensor else int(node.attrs.get("axis", 1))
    if axis is not None and x.shape is not None and -len(x.shape) <= axis < 0:
        axis += len(x.shape)  # one axis has one name, so that tables compare
    params = QParams(
        tensor=x.name if tensor is None else tensor,
        qtype=narrowest(qtype(zero_point.dtype), lo, hi),
        scale=scale.astype(np.float32, copy=False),
        zero_point=zero_point,
        axis=axis,
        block=block,
        lo=lo,
        hi=hi,
        role=role or (Role.WEIGHT if is_constant(x) else Role.ACTIVATION),
        readers=readers,
        source=node.name,
    )
    params.check_shape(x.shape)
    return params


def narrowest(stored: QType, lo: int, hi: int) -> QType:
    """The smallest type of the same sign that contains lo..hi: -8..7 in int8 means int4."""
    if stored.floating:
        return stored
    kinds = (k for k in _INTEGERS if k.signed == stored.signed and k.bits <= stored.bits)
    return next((k for k in kinds if k.lo <= lo and hi <= k.hi), stored)


def needed_opset(nodes: list[gs.Node]) -> int:
    """The lowest opset whose operators the function body needs for these nodes."""
    need = _MIN_OPSET
    for node in nodes:
        if node.attrs.get("block_size", 0) < 0:  # older opsets have no blocks and ignore it
            raise QParamsError(
                f"FakeQuantize {describe(node)}: blocks of {node.attrs['block_size']} do not exist",
                fix=_FIX,
            )
        kind = node.inputs[2].dtype
        if node.attrs.get("block_size") or (kind is not None and np.dtype(kind).itemsize > 1):
            need = 21
        elif node.inputs[1].dtype == np.float16 or (kind is not None and qtype(kind).floating):
            need = max(need, 19)
    return need
