"""QuantizeLinear/DequantizeLinear to the canonical form.

    x -> Q(s, z) -> DQ(s, z)                  FakeQuantize(x, s, z) over all codes of the type
    x -> Q(s, z) -> Clip(lo, hi) -> DQ(s, z)  FakeQuantize with quant_min = lo, quant_max = hi
    x -> Q(s, z) -> DQ(s', z')                two FakeQuantize, see `onnxq.canonical.requantize`
    codes -> [Clip] -> DQ(s, z)               constant codes: float weight + FakeQuantize
    codes -> DQ(s, z) -> Q(s', z') -> DQ      the same, twice: a weight each
    the same, a bias or int32 codes           float constant + a row of the table
    x -> Q(s, z) -> graph output              FakeQuantize(x, s, z) -> Q: the same codes
    graph input -> DQ(s, z)                   DQ -> FakeQuantize(., s, z): the same values

In the last two the Q or DQ stays, since the codes belong to the caller. Identity, and Cast to the
type that the codes have, may be between Q and DQ. A range that the nodes cannot express is taken
from their metadata, if the codes agree with it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.bias_readers import read_as_bias
from onnxq.arrays.pieces import assembled
from onnxq.canonical import fake_quantize, requantize
from onnxq.canonical.quantized_weights import quantized_values
from onnxq.dialects import qdq_params
from onnxq.dialects.node_rewrite import Declined, attempt
from onnxq.edit import (
    constant,
    describe,
    inputs_of,
    insert_at,
    only_reader,
    producer,
    remove,
    replace,
    set_input,
    users,
    variable,
)
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.graph.constants import array, computed, scalar
from onnxq.graph.dequantized import dequantized, stored_codes
from onnxq.operators.traits import DEQUANTIZE, QUANTIZE
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import QType
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, metadata
from onnxq.storage.tensors import Codes, numpy_dtype, parts_of

_CALLS = ("If", "Loop", "Scan")


@dataclass(frozen=True)
class ReadQdq(Pass):
    """Read QuantizeLinear/DequantizeLinear (also Q-Clip-DQ and stored codes) as FakeQuantize."""

    name: ClassVar[str] = "read-qdq"
    dialect: ClassVar[str] = "QDQ"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        reading = _Reading(model, trace, qdq_params.type_for_wide_zero_points(model))
        for node in model.nodes(*DEQUANTIZE):
            attempt(node, trace, partial(reading.dequantize, node))
        # A pair after codes that enter has become a FakeQuantize by now, and is found.
        for node in reading.entering:
            attempt(node, trace, partial(reading.enter, node))
        for node in model.nodes(*QUANTIZE):
            attempt(node, trace, partial(reading.leave, node))


@dataclass(frozen=True)
class _Codes:
    """Where the codes of a DequantizeLinear come from."""

    tensor: gs.Tensor
    quantize: gs.Node | None
    clip: gs.Node | None
    casts: list[np.dtype[np.generic]]

    @classmethod
    def of(cls, node: gs.Node) -> _Codes:
        tensor, casts = _upstream(node.inputs[0])
        clip = producer(tensor, "Clip")
        if clip is not None:
            tensor, others = _upstream(clip.inputs[0])
            casts += others
        return cls(tensor, producer(tensor, *QUANTIZE), clip, casts)


def _upstream(tensor: gs.Tensor) -> tuple[gs.Tensor, list[np.dtype[np.generic]]]:
    """The output of the Clip or Q before Identity and Cast nodes, and the types of the casts.

    If neither is there, it is `tensor` itself, since `array` reads constants through such nodes.
    """
    found, casts = tensor, []
    while (node := producer(found, "Identity", "Cast")) is not None:
        if node.op == "Cast":
            casts.append(numpy_dtype(node.attrs["to"]))
        found = node.inputs[0]
    return (tensor, []) if producer(found, "Clip", *QUANTIZE) is None else (found, casts)


@dataclass
class _Reading:
    """One run over one model."""

    model: Model
    trace: Trace
    wide_type: QType | None
    """The code type of a Q with an int32 zero point."""
    entering: list[gs.Node] = field(default_factory=list)
    made: dict[tuple[int, ...], gs.Tensor] = field(default_factory=dict)
    """Outputs of the FakeQuantize of a Q (and its Clip), by graph."""

    # -- pairs and stored codes -------------------------------------------------------------

    def dequantize(self, node: gs.Node) -> str:
        """Rewrite one DequantizeLinear. Returns what it became."""
        codes = _Codes.of(node)
        if codes.quantize is not None:
            return self._pair(node, codes, codes.quantize)
        stored = stored_codes(codes.tensor)
        if stored is not None:
            return self._stored(node, codes, stored)
        source = producer(codes.tensor)
        if codes.clip is None and (source is None or source.op in _CALLS):
            self.entering.append(node)
            return ""
        raise Declined(
            f"its codes '{codes.tensor.name}' come from "
            + ("a graph input" if source is None else describe(source))
        )

    def _pair(self, node: gs.Node, codes: _Codes, quantize: gs.Node) -> str:
        x, out, owner = self._settled(quantize.inputs[0]), node.outputs[0], node.owner
        first = qdq_params.of_quantize(quantize, x.name, self.wide_type)
        kind = first.qtype
        if kind.bits > 16:
            raise Declined(f"its codes are {kind}, which no quantizer produces")
        other = next((cast for cast in codes.casts if cast != kind.dtype), None)
        if other is not None:
            raise Declined(f"its {kind} codes are cast to {other}")
        second = qdq_params.of_dequantize(node, x.name, kind, x)
        first, second = (_clipped(p, codes.clip) for p in (first, second))
        dtype = qdq_params.float_type(quantize)
        name = node.name or quantize.name or f"{out.name}.fake_quantize"
        # One Q may feed many DQ: the consumers of those in one graph share one FakeQuantize.
        key = (id(quantize), id(codes.clip), id(owner))
        known = self.made.get(key)
        if not first.same_grid(second):
            rank = None if x.shape is None else len(x.shape)
            reason = requantize.why_not(first, second, dtype, rank)
            if reason:
                raise Declined(reason)
            if known is None:
                known = self.made[key] = variable(self.model, f"{x.name}.q", like=x)
                fake_quantize.make(self.model, x, known, first, owner, dtype=dtype)
            remove(node, self.model)
            requantize.chain(self.model, known, out, first, second, rank, owner, name)
            return f"{kind}, requantized: two quantizers"
        if known is not None:
            quantizer = producer(known)
            assert quantizer is not None
            replace(node, known, self.model)
            self.made[key] = quantizer.outputs[0]  # it may produce a graph output now
            return "merged with the quantizer of the same codes"
        x, params = self._stated_range(node, x, quantize, first, codes.clip)
        remove(node, self.model)
        fake_quantize.make(self.model, x, out, params, node, name=name, dtype=dtype)
        self.made[key] = out
        return f"{kind}" + (" per channel" if params.axis is not None else "")

    def _settled(self, x: gs.Tensor) -> gs.Tensor:
        """`x`, or a constant with its values if they are those of a quantized constant.

        A weight that several nodes share through an Identity is quantized for each: the second
        quantizer reads the output of the first. With a constant of its own it is a weight again.
        """
        values = quantized_values(x)
        return x if values is None else constant(self.model, f"{x.name}.float", values)

    def _stored(self, node: gs.Node, codes: _Codes, stored: Codes) -> str:
        if any(cast != stored.dtype for cast in codes.casts):
            raise Declined(f"its clamped {stored.dtype} codes are cast to another type")
        values, params = qdq_params.of_stored(node, codes.tensor.name, stored)
        suffix = f".{params.qtype}"  # as to-qdq names stored codes
        if codes.clip is not None:
            params = _clipped(params, codes.clip)
            values = _clipped_codes(values, params)
        else:
            params = self._narrowed(node, params, values)
        dtype = qdq_params.float_type(node)
        name = codes.tensor.name
        base = name.removesuffix(suffix) if name.endswith(suffix) else f"{name}.float"
        real = constant(self.model, base, dequantized(values, params, dtype))
        as_bias = len(values.shape) == 1 and read_as_bias(node.outputs[0], self.model)
        if as_bias or params.qtype.bits > 16:
            # A bias is not simulated by a node: its layer adds this constant.
            replace(node, real, self.model)
            self.model.qparams.add(params.with_(tensor=real.name, role=Role.BIAS))
            return f"{params.qtype} bias"
        out = node.outputs[0]
        name = node.name or f"{out.name}.fake_quantize"
        remove(node, self.model)
        fake_quantize.make(self.model, real, out, params, node, name=name, dtype=dtype)
        return f"stored {params.qtype} codes"

    # -- ranges in metadata -----------------------------------------------------------------

    def _stated_range(
        self, node: gs.Node, x: gs.Tensor, quantize: gs.Node, params: QParams, clip: gs.Node | None
    ) -> tuple[gs.Tensor, QParams]:
        """The input of the FakeQuantize of a pair, and its parameters with the stated range."""
        stated = None if clip is not None else _stated(node)
        if stated is None:
            return x, params
        value = array(x)
        if value is not None:
            narrow = self._narrowed(node, params, params.quantize(value))
            bare = x.name.removesuffix(".clamped")  # as to-qdq names a weight it clamps
            if bare != x.name and narrow is not params:
                x = constant(self.model, bare, value)
            return x, narrow
        clamp = producer(x, "Clip")
        if clamp is not None and only_reader(x, quantize, self.model):
            bounds = (scalar(bound) for bound in inputs_of(clamp, 3)[1:])
            ends = tuple(int(params.quantize(b)) for b in bounds if b is not None)
            if params.axis is None and ends == stated:
                # Rounding is monotone: clamping before it or after it is the same.
                return clamp.inputs[0], params.with_(lo=stated[0], hi=stated[1])
        self._ignored(node, stated)
        return x, params

    def _narrowed(self, node: gs.Node, params: QParams, codes: Codes) -> QParams:
        """`params` with the range that the node states, if all its constant codes are in it."""
        stated = _stated(node)
        if stated is None:
            return params
        with suppress(QParamsError):
            narrow = params.with_(lo=stated[0], hi=stated[1])
            if not params.qtype.floating and _lies_in(codes, *stated):
                return narrow
        self._ignored(node, stated)
        return params

    def _ignored(self, node: gs.Node, stated: tuple[int, int]) -> None:
        lo, hi = stated
        self.trace.note(
            f"{describe(node)}: its metadata specifies {lo}..{hi}, but its codes differ"
        )

    # -- codes that enter or leave ----------------------------------------------------------

    def enter(self, node: gs.Node) -> str:
        """Put a FakeQuantize after a DequantizeLinear of codes that the caller supplies."""
        codes, out = node.inputs[0], node.outputs[0]
        zero_point = computed(inputs_of(node, 3)[2])
        dtype = codes.dtype if zero_point is None else zero_point.dtype
        if dtype is None:
            raise Declined(f"the type of its codes '{codes.name}' is unknown")
        params = qdq_params.of_dequantize(node, out.name, qdq_params.code_type(np.dtype(dtype)))
        self._check_kept(node, params)
        moved = [(n, i) for n, i in users(out) if i or not _same(n, params)]
        leaves = self.model.is_output(out)
        if not moved and not leaves:
            return ""
        make = partial(fake_quantize.make, self.model, dtype=qdq_params.float_type(node))
        insert_at(self.model, out, lambda x, y, graph: make(x, y, params, graph), moved, leaves)
        return f"{params.qtype} codes as graph input"

    def leave(self, node: gs.Node) -> str:
        """Put a FakeQuantize before a QuantizeLinear whose codes the caller takes."""
        codes, x = node.outputs[0], node.inputs[0]
        consumer = _consumer_of(codes, self.model)
        if consumer is not None:
            raise Declined(f"its codes are read by {describe(consumer)}")
        if not self.model.is_output(codes):
            return ""  # nothing needs it any more
        params = qdq_params.of_quantize(node, x.name, self.wide_type)
        self._check_kept(node, params)
        source = producer(x)
        if source is not None and _same(source, params):
            return ""
        known = self.made.get((id(node), id(None), id(node.owner)))
        if known is None:
            known = variable(self.model, f"{x.name}.q", like=x)
            dtype = qdq_params.float_type(node)
            fake_quantize.make(self.model, x, known, params, node.owner, dtype=dtype)
        set_input(node, 0, known)
        return f"{params.qtype} codes as graph output"

    @staticmethod
    def _check_kept(node: gs.Node, params: QParams) -> None:
        """Decline if quantizing twice could move a code."""
        if params.qtype.bits > 16:
            raise Declined(f"its codes are {params.qtype}, which no quantizer produces")
        half = qdq_params.float_type(node) == np.float16
        if half and (params.qtype.bits > 8 or params.qtype.floating):
            raise Declined(f"float16 cannot represent all values of its {params.qtype} codes")


def _same(node: gs.Node, params: QParams) -> bool:
    """Whether `node` is a FakeQuantize with this grid."""
    return fake_quantize.is_fake_quantize(node) and fake_quantize.params_of(node).same_grid(params)


def _lies_in(codes: Codes, lo: int, hi: int) -> bool:
    """Whether all codes are lo..hi."""
    parts = (part.astype(np.int64) for _, part in parts_of(codes))
    return all(bool(np.all((part >= lo) & (part <= hi))) for part in parts)


def _clipped_codes(codes: Codes, params: QParams) -> Codes:
    """The codes cut to the range of `params`."""
    wide = np.float32 if params.qtype.floating else np.int64
    parts = (np.clip(part.astype(wide), params.lo, params.hi) for _, part in parts_of(codes))
    return assembled(codes.shape, codes.dtype, parts)


def _stated(node: gs.Node) -> tuple[int, int] | None:
    """The range in the node's metadata."""
    entries = metadata(node)
    try:
        return int(entries[QUANT_MIN]), int(entries[QUANT_MAX])
    except (KeyError, ValueError):
        return None


def _clipped(params: QParams, clip: gs.Node | None) -> QParams:
    if clip is None:
        return params
    assert params.lo is not None and params.hi is not None
    bounds = [params.lo, params.hi]
    for index, bound in enumerate(inputs_of(clip, 3)[1:]):
        if bound is None:
            continue
        value = computed(bound)
        if value is None:
            raise Declined(f"the bound '{bound.name}' of its Clip is computed at run time")
        if value.size != 1 or value.dtype.kind not in "iu":
            raise QParamsError(
                f"the bound '{bound.name}' of its Clip is not one integer, "
                f"but {value.dtype} of shape {list(value.shape)}",
                fix="the file is not a valid ONNX model: export it again",
            )
        bounds[index] = int(value.reshape(()))
    return params.with_(lo=max(params.lo, bounds[0]), hi=min(params.hi, bounds[1]))


def _consumer_of(codes: gs.Tensor, model: Model) -> gs.Node | None:
    """A node that needs the codes of a QuantizeLinear, other than for an unused result."""
    pending = list(codes.outputs)
    while pending:
        node = pending.pop()
        out = node.outputs[0]
        if node.op not in ("Clip", "Identity", "Cast") or model.is_output(out):
            return node
        pending += out.outputs
    return None


__all__ = ["ReadQdq"]
