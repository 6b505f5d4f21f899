"""Ranges that follow from those of other tensors, by interval arithmetic in float64.

    forward     moves keep a range; Concat, Where, Max and Min join several; averages and
                interpolation stay within; x + y, x - y, x * y and x / y have the ends of the ends;
                an increasing f has f(low)..f(high); one that first falls and then rises (Gelu,
                HardSwish, x * sigmoid(x)) also its lowest value, if that lies in between
    backward    for what only moves, Concat, MaxPool, Relu or a Clip from 0 up read: the range of
                their results. Values beyond it come out at its end, whether they are cut before or
                after (see `onnxq.analysis.implied_ranges`)

A bound through + and * may be wider than what occurs, and never clips. Layers and norms sum
products: their bounds would be so wide that nothing is derived.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.signs import Signs
from onnxq.calibration.ranges import KnownRange, RangeTable, united
from onnxq.edit import describe, inputs_of, producer, users
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import array, scalar
from onnxq.operators.op_kind import gelu_of
from onnxq.operators.traits import moved_outputs, moves
from onnxq.quant.qparams import Array

Ends = tuple[float, float]
"""Lowest and highest value."""

_EVERYTHING = -math.inf, math.inf
_FIXED: dict[str, Ends] = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax"), (0.0, 1.0)),
    **dict.fromkeys(("Tanh", "Erf", "Softsign", "Sin", "Cos"), (-1.0, 1.0)),
}
"""Results of these lie between fixed numbers, whatever they read."""

_WITHIN = frozenset(
    {"AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceMax", "ReduceMin", "MaxPool"}
)
"""Results lie between the values that are read, or are zeros of the border."""

_JOINED = frozenset({"Concat", "Max", "Min"})


def follow(model: Model, known: RangeTable) -> RangeTable:
    """The ranges of further tensors that follow from `known`; `known` is not changed."""
    found = _Following(model, known)
    found.forward()
    found.backward()
    found.forward()
    return found.ranges


def within_limits(model: Model, known: RangeTable) -> RangeTable:
    """`known` without what cannot occur: below zero after a Relu, beyond the bounds of a Clip.

    A grid around zero spends half of its codes there.
    """
    signs, found = Signs(), dict(known)
    for node in model.nodes():
        for tensor in node.outputs:
            given = known.get(tensor.name)
            if given is None:
                continue
            low, high = _ends(given)
            stated = None if domain_of(node) else _stated(node)
            least, most = _EVERYTHING if stated is None else _ends(stated)
            if signs.never_negative(tensor):
                least = max(least, 0.0)
            new = max(low, min(least, 0.0)), min(high, max(most, 0.0))
            if new != (low, high):
                found[tensor.name] = KnownRange.of(*new, f"{given.source}, as far as values occur")
    return found


class _Following:
    """The ranges found so far, with what each follows from."""

    def __init__(self, model: Model, known: RangeTable) -> None:
        self.model = model
        self.known = known
        self.ranges: RangeTable = {}
        self._nodes = [n for n in model.nodes() if not domain_of(n)]
        self._gelu: dict[int, gs.Tensor] = {}
        for erf in model.nodes("Erf"):
            gelu = gelu_of(erf)
            if gelu is not None:
                self._gelu[id(gelu[1][-1])] = gelu[0]

    def of(self, tensor: gs.Tensor) -> KnownRange | None:
        """The range of a tensor, if it is known or follows."""
        found = self.known.get(tensor.name) or self.ranges.get(tensor.name)
        if found is None and (values := _floats(tensor)) is not None:
            found = KnownRange.of(float(values.min()), float(values.max()), "its own values")
        return found

    def forward(self) -> None:
        """From what nodes read to what they give."""
        for node in self._nodes:
            outputs = node.outputs[:1]
            if moves(node):
                outputs = [node.outputs[i] for i in moved_outputs(node)]
            wanted = [t for t in outputs if t.name and self._unknown(t)]
            if wanted and (made := self._result(node)) is not None:
                self.ranges.update((t.name, made) for t in wanted)

    def backward(self) -> None:
        """From what nodes give to what they alone read."""
        for node in reversed(self._nodes):
            for tensor in node.inputs:
                if tensor.name and self._unknown(tensor) and producer(tensor) is not None:
                    self._from_consumers(tensor)

    def _unknown(self, tensor: gs.Tensor) -> bool:
        return tensor.name not in self.known and tensor.name not in self.ranges

    def _from_consumers(self, tensor: gs.Tensor) -> None:
        readers = users(tensor)
        if self.model.is_output(tensor) or not readers or len(readers) > _MOST_READERS:
            return
        given: list[KnownRange] = []
        for node, index in readers:
            result = self.of(node.outputs[0]) if _keeps_ends(node, index) else None
            if result is None:
                return
            given.append(_from(node.outputs[0], result))
        self.ranges[tensor.name] = united(given)

    def _result(self, node: gs.Node) -> KnownRange | None:
        """The range of the first output."""
        if not node.inputs:
            return None
        if id(node) in self._gelu:
            return self._through(self._gelu[id(node)], _falling_first(_gelu, -0.7517916))
        gated = _gated(node)
        if gated is not None:
            return self._through(gated[0], _falling_first(gated[1], gated[2]))
        if moves(node) or node.op in _WITHIN or node.op in ("Resize", "Upsample"):
            return self._within(node)
        if node.op in _JOINED or node.op == "Where":
            return self._joined(node)
        if node.op in _ARITHMETIC and len(node.inputs) == 2:
            return self._computed(node)
        rule = _function(node)
        if rule is not None:
            made = self._through(node.inputs[0], rule)
            if made is not None:
                return made
        return _stated(node)

    def _within(self, node: gs.Node) -> KnownRange | None:
        read = self.of(node.inputs[0])
        if read is None or (node.op == "Resize" and not _interpolates(node)):
            return None
        return _from(node.inputs[0], read)

    def _joined(self, node: gs.Node) -> KnownRange | None:
        read = [(t, self.of(t)) for t in (node.inputs[1:] if node.op == "Where" else node.inputs)]
        found = [_from(t, each) for t, each in read if each is not None]
        return united(found) if found and len(found) == len(read) else None

    def _computed(self, node: gs.Node) -> KnownRange | None:
        left, right = (self.of(t) for t in node.inputs)
        if left is None or right is None:
            return None
        (a, b), (c, d) = _ends(left), _ends(right)
        if node.op == "Div" and c <= 0 <= d:
            return None
        if node.op == "Mul" and node.inputs[0] is node.inputs[1]:
            corners = [a * a, b * b, *([0.0] if a <= 0 <= b else [])]
        else:
            corners = [_ARITHMETIC[node.op](x, y) for x in (a, b) for y in (c, d)]
        names = [f"'{t.name}'" for t in node.inputs if array(t) is None]
        return _made(min(corners), max(corners), f"a bound from {' and '.join(names)} by {node.op}")

    def _through(self, tensor: gs.Tensor, rule: Callable[[Ends], Ends]) -> KnownRange | None:
        read = self.of(tensor)
        if read is None:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = rule(_ends(read))
        return _made(low, high, _from(tensor, read).source)


_MOST_READERS = 64
"""Tensors with more consumers than this are not looked at backwards: each asks all of them."""


def _floats(tensor: gs.Tensor) -> Array | None:
    known = isinstance(tensor, gs.Constant) or producer(tensor, "Constant") is not None
    values = array(tensor) if known else None
    if values is None or not values.size or not np.issubdtype(values.dtype, np.floating):
        return None
    return values if np.isfinite(values).all() else None


def _ends(known: KnownRange) -> Ends:
    return float(known.low.min()), float(known.high.max())


def _made(low: float, high: float, source: str) -> KnownRange | None:
    return KnownRange.of(low, high, source) if math.isfinite(low) and math.isfinite(high) else None


def _from(tensor: gs.Tensor, known: KnownRange) -> KnownRange:
    """The same range for another tensor; what it follows from is named once."""
    if known.source.startswith("follows from"):
        return known
    return KnownRange(known.low, known.high, f"follows from '{tensor.name}': {known.source}")


def _interpolates(resize: gs.Node) -> bool:
    """Whether all results lie between values that are read: a cubic overshoots, a border adds."""
    border = resize.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return resize.attrs.get("mode") != "cubic" and not border


def _keeps_ends(node: gs.Node, index: int) -> bool:
    """Whether values beyond the range of the result may be cut before the node as well."""
    if domain_of(node) or not node.outputs:
        return False
    if node.op == "Concat":
        return True
    if index != 0:
        return False
    if node.op == "Clip":
        return _bounds(node)[0] == 0
    if node.op in ("Relu", "MaxPool", "GlobalMaxPool"):
        return True
    # A Gather or Slice may leave out the values that are read elsewhere, which then have no use.
    return moves(node) and len(node.outputs) == 1


def _bounds(clip: gs.Node) -> Ends:
    """The bounds of a Clip; infinite if they are computed or absent."""
    _, low, high = inputs_of(clip, 3)
    found = clip.attrs.get("min", scalar(low)), clip.attrs.get("max", scalar(high))
    return (
        -math.inf if found[0] is None else float(found[0]),
        math.inf if found[1] is None else float(found[1]),
    )


def _stated(node: gs.Node) -> KnownRange | None:
    """The range of a function that has fixed ends."""
    low, high = _bounds(node) if node.op == "Clip" else _FIXED.get(node.op, _EVERYTHING)
    return _made(low, high, f"{describe(node)} gives {low:g}..{high:g}")


# -- functions ----------------------------------------------------------------------------------


def _function(node: gs.Node) -> Callable[[Ends], Ends] | None:
    """How the ends of a function's result follow from those of its input."""
    if node.op == "Clip":
        low, high = _bounds(node)
        return _rising(lambda x: min(max(x, low), high))
    alpha = float(node.attrs.get("alpha", _ALPHA.get(node.op, 1.0)))
    if node.op in ("LeakyRelu", "Elu") and alpha < 0:
        return None
    if node.op == "LeakyRelu":
        return _rising(lambda x: x if x >= 0 else alpha * x)
    if node.op == "Elu":
        return _rising(lambda x: x if x >= 0 else alpha * math.expm1(x))
    if node.op == "HardSigmoid":
        beta = float(node.attrs.get("beta", 0.5))
        return _rising(lambda x: min(max(alpha * x + beta, 0.0), 1.0)) if alpha >= 0 else None
    if node.op in _RISING:
        return _rising(_RISING[node.op])
    if node.op in _FALLING_FIRST:
        return _falling_first(*_FALLING_FIRST[node.op])
    if node.op == "Neg":
        return lambda ends: (-ends[1], -ends[0])
    if node.op == "Sqrt":
        return lambda ends: (math.sqrt(max(ends[0], 0.0)), math.sqrt(max(ends[1], 0.0)))
    return None


_ALPHA = {"LeakyRelu": 0.01, "HardSigmoid": 0.2}


def _rising(function: Callable[[float], float]) -> Callable[[Ends], Ends]:
    return lambda ends: (function(ends[0]), function(ends[1]))


def _falling_first(function: Callable[[float], float], lowest_at: float) -> Callable[[Ends], Ends]:
    def rule(ends: Ends) -> Ends:
        values = [function(x) for x in ends]
        inside = ends[0] <= lowest_at <= ends[1]
        return min([*values, *([function(lowest_at)] if inside else [])]), max(values)

    return rule


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _hard_sigmoid(x: float) -> float:
    return min(max(x / 6 + 0.5, 0.0), 1.0)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def _swish(x: float) -> float:
    return x * _sigmoid(x)


def _hard_swish(x: float) -> float:
    return x * _hard_sigmoid(x)


_RISING: dict[str, Callable[[float], float]] = {
    "Relu": lambda x: max(x, 0.0),
    "Sigmoid": _sigmoid,
    "Tanh": math.tanh,
    "Erf": math.erf,
    "Exp": _exp,
    "Softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    "Softsign": lambda x: x / (1 + abs(x)),
}
_FALLING_FIRST: dict[str, tuple[Callable[[float], float], float]] = {
    "Abs": (abs, 0.0),
    "Gelu": (_gelu, -0.7517916),
    "HardSwish": (_hard_swish, -1.5),
    "Swish": (_swish, -1.2784645),
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": lambda x, y: x / y,
}


def _gated(node: gs.Node) -> tuple[gs.Tensor, Callable[[float], float], float] | None:
    """The input of x * sigmoid(x) or x * hard_sigmoid(x), the function, and where it is lowest."""
    if node.op != "Mul" or len(node.inputs) != 2:
        return None
    pairs: Iterable[tuple[gs.Tensor, gs.Tensor]] = (
        (node.inputs[0], node.inputs[1]),
        (node.inputs[1], node.inputs[0]),
    )
    for x, gate in pairs:
        made = producer(gate, "Sigmoid", "HardSigmoid")
        if made is None or made.inputs[0] is not x:
            continue
        if made.op == "Sigmoid":
            return x, *_FALLING_FIRST["Swish"]
        slope, middle = (float(made.attrs.get(k, d)) for k, d in (("alpha", 0.2), ("beta", 0.5)))
        if abs(slope - 1 / 6) < 1e-6 and middle == 0.5:
            return x, *_FALLING_FIRST["HardSwish"]
    return None


__all__ = ["follow", "within_limits"]
