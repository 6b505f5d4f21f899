"""Fake quantization written with elementary operators: finding such a chain and reading its grid.

    x -> Div s -> Round -> Add z -> Clip lo, hi -> Sub z -> Mul s

Tools write it in many ways. The chain is found from its end, a Mul or Div by a constant, backwards
over what it may contain, up to the Div or Mul that brought x onto the grid:

    Add, Sub                 an integer zero point, before or after Round
    Clip, Max, Min, Relu     bounds, before or after Round
    Identity, Cast, CastLike nothing that changes a value
    (Round(v) - v) + v       Round(v), as straight-through estimators are exported. Both operations
                             are exact: Round(v) is within 1/2 of v, hence within a factor of 2 or
                             0 (an x / s beyond float32, which they make NaN, has the last code)

With v = x / s, everything after the first operator is clamp(R(v) + z, lo, hi) - z, since

    clamp(R(v)) = R(clamp(v)) with integer bounds, and sums of integers below 2^24 are exact.

Two forms round a value within one float rounding of a tie differently: x * r with r = 1/s (unless
s is a power of two), and R(v + z) (unless z = 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

from onnxq.dialects.node_rewrite import Declined
from onnxq.edit import inputs_of, producer
from onnxq.errors import QParamsError
from onnxq.graph import domain_of
from onnxq.graph.constants import array, computed, is_constant
from onnxq.quant.qparams import Array
from onnxq.storage.tensors import numpy_dtype

_LONGEST = 24
"""The highest number of operators between the ends of a chain; real ones have about ten."""


_INTEGERS = {
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
}


@dataclass(frozen=True, eq=False)
class Link:
    """One operator of a chain: its effect on the values, and its constants."""

    op: str
    """add, clip, round, integer, or nothing"""
    data: gs.Tensor
    low: Array | None = None
    high: Array | None = None
    by: Array | None = None


@dataclass(frozen=True, eq=False)
class Chain:
    """A chain in the graph, from its source to its last node."""

    source: gs.Tensor
    first: gs.Node
    """The consumer of the source."""
    enter: tuple[str, Array] | None
    """Div or Mul and its constant; None if the exporter already divided a constant."""
    links: tuple[Link, ...]
    leave: tuple[str, Array]

    def values(self, x: Array) -> Array:
        """The result of the chain for the constant `x`, in the arithmetic of a runtime."""
        codes = x
        with np.errstate(all="ignore"):
            if self.enter is not None:
                codes = _scaled(codes, *self.enter)
            for link in self.links:
                if link.op == "round":
                    codes = np.rint(codes)
                elif link.op == "add" and link.by is not None:
                    codes = codes + link.by.astype(np.float32)
                elif link.op == "clip":
                    if link.low is not None:
                        codes = np.maximum(codes, link.low.astype(np.float32))
                    if link.high is not None:
                        codes = np.minimum(codes, link.high.astype(np.float32))
            return np.asarray(_scaled(codes, *self.leave), np.float32)


def _scaled(x: Array, op: str, by: Array) -> Array:
    return np.asarray(x * by if op == "Mul" else x / by)


# -- finding ----------------------------------------------------------------------------------


def chain_to(node: gs.Node) -> Chain | None:
    """The chain that ends with `node`, a Mul or Div; None if there is none."""
    split = _split(node)
    if split is None:
        return None
    tensor, leave = split[0], (node.op, split[1])
    links: list[Link] = []
    rounded = False
    last = node
    for _ in range(_LONGEST):
        before = producer(tensor)
        if before is None or domain_of(before) or before.outputs[0] is not tensor:
            break
        if rounded and before.op in ("Div", "Mul"):
            split = _split(before)
            if split is None:
                return None
            return Chain(split[0], before, (before.op, split[1]), tuple(links[::-1]), leave)
        link = _link(before)
        if link is None:
            break
        rounded = rounded or link.op == "round"
        links.append(link)
        tensor, last = link.data, before
    if rounded and is_constant(tensor):
        return Chain(tensor, last, None, tuple(links[::-1]), leave)
    return None


def _split(node: gs.Node) -> tuple[gs.Tensor, Array] | None:
    """The data input of a node of two inputs, and its constant; of two constants the smaller."""
    if len(node.inputs) != 2:
        return None
    left, right = node.inputs
    known = number(right)
    other = None if node.op in ("Div", "Sub") else number(left)
    if known is not None and (other is None or known.size <= other.size):
        return left, known
    return None if other is None else (right, other)


def number(tensor: gs.Tensor) -> Array | None:
    """A constant, also one that is converted to the type of something computed at run time."""
    value = computed(tensor)
    cast = producer(tensor, "CastLike") if value is None else None
    if cast is not None:
        value = computed(cast.inputs[0])
    if value is None or value.dtype.kind not in "fiu" or not value.size:
        return None
    return value if cast is None else value.astype(np.float32)


def _link(node: gs.Node) -> Link | None:
    """One operator inside a chain; None if it cannot be part of one."""
    data = node.inputs[0] if node.inputs else None
    if data is None:
        return None
    if node.op in ("Identity", "CastLike"):
        return Link("nothing", data)
    if node.op == "Cast":
        to = node.attrs.get("to")
        if to in _INTEGERS:
            info = np.iinfo(numpy_dtype(to))
            return Link("integer", data, np.asarray(info.min), np.asarray(info.max))
        return Link("nothing", data) if to == TensorProto.FLOAT else None
    if node.op == "Round":
        return Link("round", data)
    if node.op in ("Clip", "Relu", "Max", "Min"):
        return _bounds(node)
    if node.op == "Add" and (through := _straight_through(node)) is not None:
        return Link("nothing", through)
    if node.op in ("Add", "Sub"):
        split = _split(node)
        if split is None:
            return None
        return Link("add", split[0], by=split[1] if node.op == "Add" else -split[1])
    return None


def _straight_through(node: gs.Node) -> gs.Tensor | None:
    """Round(v), if `node` adds v to Round(v) - v."""
    if len(node.inputs) != 2:
        return None
    for difference, v in (node.inputs, node.inputs[::-1]):
        minus = producer(difference, "Sub")
        if minus is None or len(minus.inputs) != 2 or minus.inputs[1] is not v:
            continue
        rounded = producer(minus.inputs[0], "Round")
        if rounded is not None and rounded.inputs[0] is v:
            return minus.inputs[0]
    return None


def _bounds(node: gs.Node) -> Link | None:
    """Clip, Max, Min or Relu as lower and upper bound."""
    if node.op == "Relu":
        return Link("clip", node.inputs[0], low=np.zeros(()))
    if node.op != "Clip":
        split = _split(node)
        if split is None:
            return None
        data, bound = split
        return Link("clip", data, **{"low" if node.op == "Max" else "high": bound})
    data, *ends = inputs_of(node, 3)
    found: list[Array | None] = []
    for end, key in zip(ends, ("min", "max"), strict=True):
        value = np.asarray(node.attrs[key]) if key in node.attrs else None
        if end is not None:
            value = number(end)
            if value is None:
                return None
        found.append(value)
    assert data is not None
    return Link("clip", data, low=found[0], high=found[1])


# -- reading ----------------------------------------------------------------------------------


@dataclass
class ClipRange:
    """clamp(R(v) + shift, ...) while the links of a chain are followed.

    `low` and `high` count without the shift, so that y = clamp(R(v), low, high) in the end.
    """

    shift: Array = field(default_factory=lambda: np.zeros(()))
    low: Array = field(default_factory=lambda: np.asarray(-np.inf))
    high: Array = field(default_factory=lambda: np.asarray(np.inf))
    zero_point: Array = field(default_factory=lambda: np.zeros(()))
    """The shift at the bounds."""
    stated: bool = False
    """Whether a zero point is written, even if it is 0."""
    shifts_before_round: bool = False

    @property
    def bounded(self) -> tuple[bool, bool]:
        """Whether there is a lower and an upper bound."""
        return bool(np.isfinite(self.low).all()), bool(np.isfinite(self.high).all())

    def clip(self, low: Array | None, high: Array | None) -> None:
        """Clamp to bounds that count without the shift."""
        for bound, cut in ((low, np.maximum), (high, np.minimum)):
            if bound is not None:
                self.low, self.high = cut(self.low, bound), cut(self.high, bound)

    def codes(self) -> tuple[int, int]:
        """Lowest and highest code, zero point included."""
        found = []
        for bound in (self.low, self.high):
            codes = np.unique(bound + self.zero_point)
            if codes.size != 1 or not np.isfinite(codes).all():
                raise Declined("its channels have different ranges of codes")
            found.append(int(codes[0]))
        return found[0], found[1]


def clip_range(chain: Chain) -> ClipRange:
    """Follow the links of a chain."""
    _check_shapes(chain)
    state = ClipRange()
    rounded = False
    for link in chain.links:
        if link.op == "round":
            rounded = True
        elif link.op == "add" and link.by is not None:
            by = link.by.astype(np.float64)
            bad = by[~np.isfinite(by) | (by != np.rint(by))]
            if bad.size:
                raise Declined(f"its zero point {bad[0]} is not an integer")
            state.stated = True
            state.shifts_before_round |= not rounded and bool(np.any(by))
            state.shift = state.shift + by
        elif link.op == "integer":
            _check_integer(link, state, rounded)
        elif link.op == "clip":
            ends = [_code(end, rounded) for end in (link.low, link.high)]
            state.clip(*(None if end is None else end - state.shift for end in ends))
            state.zero_point = state.shift
    if not all(state.bounded):
        state.clip(*_source_bounds(chain))
    if np.any(state.shift) and any(state.bounded):
        raise Declined("the zero point that it adds is not subtracted again")
    return state


def _check_shapes(chain: Chain) -> None:
    """Constants of a valid chain broadcast with one another, and with a source that is one."""
    used = [chain.leave[1]] + ([] if chain.enter is None else [chain.enter[1]])
    source = array(chain.source)
    used += [] if source is None else [source]
    used += [a for link in chain.links for a in (link.low, link.high, link.by) if a is not None]
    try:
        np.broadcast_shapes(*(a.shape for a in used))
    except ValueError:
        shapes = ", ".join(str(list(a.shape)) for a in used if a.ndim)
        raise Declined(f"its constants of shapes {shapes} do not match") from None


def _code(bound: Array | None, rounded: bool) -> Array | None:
    """A bound of codes; one before Round is rounded with the values it bounds."""
    if bound is None:
        return None
    codes = np.rint(bound.astype(np.float64))
    bad = np.asarray(bound)[np.isnan(codes) | (rounded & (codes != bound))]
    if bad.size:
        raise Declined(f"its bound {bad.flat[0]} is not an integer")
    return codes


def _check_integer(link: Link, state: ClipRange, rounded: bool) -> None:
    """Decline a Cast to integers that changes a value: one of a type that cannot represent it."""
    assert link.low is not None and link.high is not None
    if not rounded:
        raise Declined("it casts to integers, which truncates, before it rounds")
    if all(state.bounded):
        lowest, highest = state.low + state.shift, state.high + state.shift
        kept = bool(np.all(lowest >= link.low) and np.all(highest <= link.high))
    else:
        kept = bool(link.high >= np.iinfo(np.int32).max)  # beyond it ONNX leaves it undefined
    if not kept:
        raise Declined(f"it casts codes to integers of {link.low}..{link.high}, which wrap")


def _source_bounds(chain: Chain) -> tuple[Array | None, Array | None]:
    """Bounds of the codes that follow from a Clip before the chain: R(bound / s)."""
    clip = producer(chain.source, "Clip", "Relu", "Max", "Min")
    link = None if clip is None else _bounds(clip)
    enter = chain.enter
    if link is None or enter is None:
        return None, None

    def code(end: Array | None) -> Array | None:
        if end is None:
            return None
        with np.errstate(all="ignore"):
            return np.rint(_scaled(end.astype(np.float32), *enter)).astype(np.float64)

    return code(link.low), code(link.high)


def scale_of(chain: Chain) -> tuple[Array, bool]:
    """The scale of a chain, and whether the chain divides and multiplies exactly by it.

    r * s is exact in float64, so that r = 1/s can be told from the nearest float.
    """
    op, out = chain.leave
    enter, by = chain.enter or ("Div" if op == "Mul" else "Mul", out)
    for constant in (by, out):
        bad = constant[~((constant > 0) & np.isfinite(constant))]
        if bad.size:
            raise QParamsError(
                f"tensor '{chain.source.name}': scale {bad.flat[0]} is not a positive "
                "finite number",
                fix="recalibrate this tensor, or leave it unquantized",
            )
    with np.errstate(all="ignore"):
        scale = out if op == "Mul" else by if enter == "Div" else np.ones((), out.dtype) / out
        wide, ends = by.astype(np.float64), out.astype(np.float64)
        ratio = wide / ends if enter != op else wide * ends
    if np.any(np.abs(ratio - 1) > 2.0**-22):
        raise Declined("it divides by one scale and multiplies by another")
    exact = bool(np.all(ratio == 1))
    if enter == "Mul" and op == "Div":  # the reciprocal of r is exact for powers of two only
        exact = exact and bool(np.all(np.frexp(by)[0] == 0.5))
    if scale.dtype != np.float32:
        raise Declined(f"it computes in {scale.dtype}; only float32 rounds as FakeQuantize does")
    return np.asarray(scale), exact
