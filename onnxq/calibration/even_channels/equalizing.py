r"""Channels made alike before layers that filter each channel by itself.

One scale serves all channels of an activation, and leaves small ones few codes. A depthwise
convolution has a scale of its own for each channel of its weight, and the convolution before it for
each channel of its results. So for any f_c > 0

    y_c = w_c * x_c = (f_c w_c) * (x_c / f_c)

changes nothing but the codes of x: the weights are rounded to the same codes as before, and the
noise of channel c becomes f_c^2 of what it was. x / f is folded into the convolutions that make x.
Between them and the readers may be what lets a positive factor through: Relu, pooling, sums of such
tensors, which then all have the factors of one group. They are

    f_c = max( min(1, H max|x_c| / max|x|), F )

with the largest share of the group's tensors. The headroom H = 1 + HEADROOM / sqrt(samples) is for
larger values in other data: 1.1 with 64 samples, 1.28 with 8. A Clip from 0 to L cuts x_c at f_c L
now, which by max|x| <= L lies beyond H max|x_c|.

The noise of x behind the weights falls from \sum_c |w_c|^2 to \sum_c f_c^2 |w_c|^2, in steps of x;
where that is next to nothing, nothing is done.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.calibration.even_channels.smoothing import Smoothed
from onnxq.edit import inputs_of, new_values, set_input
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import array, scalar
from onnxq.observing.tensor_statistics import Channels
from onnxq.quant.qparams import Array
from onnxq.quant.scheme import Scheme

WORTH = 1.1
"""How many times less noise there must be: it costs nothing."""
HEADROOM = 0.8
"""Times 1 / sqrt(samples): how far beyond the largest value of the data one is expected."""
LEAST = 1 / 8
"""The smallest factor F: a channel that was silent in the data may wake up."""
_POSITIVE = frozenset({"Relu", "LeakyRelu", "MaxPool", "AveragePool"})
"""f(a x) = a f(x) for a > 0, in each channel."""


@dataclass
class Group:
    """Tensors that have their factors in common."""

    tensors: list[str] = field(default_factory=list)
    makers: list[gs.Node] = field(default_factory=list)
    """Convolutions whose results they are."""
    readers: list[gs.Node] = field(default_factory=list)
    """Depthwise convolutions."""
    clipped: list[str] = field(default_factory=list)
    """Results of Clip nodes among the tensors."""

    @property
    def size(self) -> int | None:
        """The number of channels; None if there is no one number."""
        sizes = {array(node.inputs[1]).shape[0] for node in self.makers}  # type: ignore[union-attr]
        sizes |= {int(node.attrs["group"]) for node in self.readers}
        return sizes.pop() if len(sizes) == 1 else None


def may_equalize(scheme: Scheme) -> bool:
    """Whether weights have a grid for each channel, and grids of activations have steps."""
    logarithmic = scheme.weight.logarithmic or scheme.activation.logarithmic
    return scheme.weight.per_channel and not logarithmic


def groups(model: Model) -> Iterator[Group]:
    """The groups whose channels may be scaled, each with a maker and a reader."""
    united = _United()
    makers: dict[str, gs.Node] = {}
    readers: dict[str, list[gs.Node]] = {}
    clipped: set[str] = set()
    fixed = {str(t.name) for t in (*model.graph.inputs, *model.graph.outputs)}
    for node in model.nodes():
        read = [t for t in node.inputs if t.name and array(t) is None]
        names = [str(t.name) for t in (*read, *node.outputs)]
        if node.owner is not model.graph or domain_of(node):
            fixed.update(names)
        elif node.op == "Conv" and _has_constants(node):
            makers[names[-1]] = node
            if _is_depthwise(node):
                readers.setdefault(names[0], []).append(node)
            else:
                fixed.add(names[0])
        elif _lets_factors_through(node) and len(node.outputs) == 1:
            for name in names:
                united.join(name, names[-1])
            if node.op == "Clip":
                clipped.add(names[-1])
        else:
            fixed.update(names)
    found: dict[str, Group] = {}
    for name in dict.fromkeys((*makers, *readers, *united.parent)):
        group = found.setdefault(united.root(name), Group())
        group.tensors.append(name)
        group.makers += [makers[name]] if name in makers else []
        group.readers += readers.get(name, [])
        group.clipped += [name] if name in clipped else []
    for group in found.values():
        free = fixed.isdisjoint(group.tensors)
        if free and group.readers and group.makers and group.size is not None:
            yield group


def equalize(
    model: Model,
    channels: Mapping[str, Channels],
    observed: Collection[str],
    tensors: Collection[str] | None = None,
    samples: int = 64,
) -> list[Smoothed]:
    """Equalize what pays in `model`, which is changed; it computes the same on the data.

    `channels` must know all tensors of a group that were `observed`, or could not follow the
    change. Given `tensors`, the groups of these and no others are equalized. `samples` is how many
    were observed.
    """
    done = []
    for group in list(groups(model)):
        needed = {name for name in group.tensors if name in observed}.union(group.clipped)
        seen = {name: channels[name] for name in group.tensors if name in channels}
        if not seen or not needed <= seen.keys():
            continue
        if any(each.low.size != group.size for each in seen.values()):
            continue
        if tensors is not None and seen.keys().isdisjoint(tensors):
            continue
        factors = _factors(list(seen.values()), 1 + HEADROOM / math.sqrt(max(samples, 1)))
        if factors is None:
            continue
        gain = _gain(group, factors)
        if tensors is None and gain < WORTH:
            continue
        for node in group.makers:
            _scale(model, node, 1 / factors, with_bias=True)
        for node in group.readers:
            _scale(model, node, factors, with_bias=False)
        done += [Smoothed(name, name, 1.0, factors, gain) for name in seen]
    return done


def _factors(seen: list[Channels], headroom: float) -> Array | None:
    shares = []
    for each in seen:
        reach = np.maximum(np.abs(each.low), np.abs(each.high))
        if not np.isfinite(reach).all():
            return None  # only averages were observed
        shares.append(reach / max(float(reach.max()), 1e-30))
    share = np.max(shares, axis=0)
    return np.asarray(np.clip(headroom * share, LEAST, 1.0).astype(np.float32))


def _gain(group: Group, factors: Array) -> float:
    """How many times less noise there is behind the weights of the readers."""
    power = np.zeros(factors.size)
    for node in group.readers:
        weight = array(node.inputs[1])
        assert weight is not None
        power += np.square(weight.astype(np.float64)).reshape(factors.size, -1).sum(axis=1)
    left = float((np.square(factors.astype(np.float64)) * power).sum())
    return float(power.sum()) / left if left else 1.0


def _scale(model: Model, node: gs.Node, factors: Array, *, with_bias: bool) -> None:
    """Multiply the channels of the weight, and of the bias as well."""
    for index, old in enumerate(inputs_of(node, 3)):
        if index == 0 or old is None or (index == 2 and not with_bias):
            continue
        value = array(old)
        assert value is not None
        rows = value.reshape(factors.size, -1).astype(np.float64) * factors[:, None]
        new = rows.reshape(value.shape).astype(value.dtype)
        set_input(node, index, new_values(model, old, new, node))


def _has_constants(conv: gs.Node) -> bool:
    given = [t for t in inputs_of(conv, 3)[1:] if t is not None]
    return all(array(t) is not None for t in given) and array(conv.inputs[0]) is None


def _is_depthwise(conv: gs.Node) -> bool:
    weight = array(conv.inputs[1])
    return weight is not None and weight.shape[1] == 1 and int(conv.attrs.get("group", 1)) > 1


def _lets_factors_through(node: gs.Node) -> bool:
    if node.op == "Clip":
        low = inputs_of(node, 2)[1]
        return low is not None and scalar(low) == 0
    if node.op == "Add":
        return all(array(t) is None for t in node.inputs)
    return node.op in _POSITIVE


class _United:
    """Sets of names that are joined (union-find)."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        """The name that stands for the set."""
        at = name
        while self.parent.setdefault(at, at) != at:
            self.parent[at] = at = self.parent[self.parent[at]]
        return at

    def join(self, one: str, other: str) -> None:
        """Make one set of two."""
        self.parent[self.root(one)] = self.root(other)


__all__ = ["Group", "equalize", "groups", "may_equalize"]
