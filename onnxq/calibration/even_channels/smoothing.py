r"""SmoothQuant: outliers of activations moved into the weights that multiply them.

A few channels of a transformer's activations are far larger than the others, and one scale for all
of them leaves the small ones few codes. For any s_j > 0

    y_o = \sum_j x_j W_jo = \sum_j (x_j / s_j) (s_j W_jo),   s_j = max|x_j|^a / max|W_j|^(1-a)

and the exponent a decides how much of the trouble the weights take. It is chosen for each group of
layers that read one tensor, by the noise that rounding adds to y:

    N(a) = d_x^2 / 12 * \sum_jo (s_j W_jo)^2  +  \sum_o d_o^2 / 12 * \sum_j E[x_j^2] / s_j^2

with d_x the step of x / s, and d_o that of column o of the scaled weight.

Smoothing also takes the room away that small channels had in the range of the large ones: each now
ends where its largest value in the data was, and a few samples have not seen the largest value yet.
Beyond the largest M of n values lies the next one with a probability of 1/n. With tails that fall
exponentially from the average m on, at the rate that makes M what it is, t = (M - m) / ln n (of
nine channels in ten at least: a silent one may wake up), a channel that is cut off at its edge e
adds

    C(e) = 2 t_j^2 / n * exp(-(e - M_j) / t_j) * \sum_o W_jo^2

to the noise of y. So the range of x / s gets the margin with which N + C is least: next to none
with the thousands of values that sentences and pictures have in a channel, twice the range with
some tens. If N + C is then not at least a quarter less than without smoothing, nothing is done.

x / s is folded into a LayerNormalization that produces x for these layers alone. Otherwise it is a
Mul, unless the target would quantize what the Mul reads: then nothing is won.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.arrays.pieces import assembled, blocks, row_slices
from onnxq.backend import Backend
from onnxq.edit import constant, new_node, producer, set_input, users, variable
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.observing.tensor_statistics import Channels
from onnxq.quant.qparams import Array
from onnxq.quant.scheme import Scheme

EXPONENTS = np.linspace(0.1, 1.0, 19)
MOST_COLUMNS = 512
"""Columns of a weight that the noise is estimated with."""
WORTH = 4 / 3
"""How many times less noise there must be for smoothing to pay."""
MARGINS = (1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0)
"""Ranges tried for x / s, as multiples of its extremes in the data."""
USUAL = 0.9
"""Share of the channels that have no larger values than one that was silent may have."""


@dataclass(frozen=True)
class Smoothed:
    """What was done to one tensor."""

    tensor: str
    smoothed: str
    """The name of x / s, whose statistics follow from those of x."""
    exponent: float
    factors: Array
    gain: float
    """How many times less noise is expected."""
    margin: float = 1.0
    """The range of the tensor, as a multiple of its extremes in the data."""


def groups(model: Model) -> Iterator[tuple[gs.Tensor, list[gs.Node]]]:
    """Tensors whose last axis is multiplied with constant matrices, and the layers that do so."""
    found: dict[int, tuple[gs.Tensor, list[gs.Node]]] = {}
    for node in model.nodes("MatMul", "Gemm"):
        weight = array(node.inputs[1])
        if weight is None or weight.ndim != 2 or node.attrs.get("transA"):
            continue
        if array(node.inputs[0]) is None:
            found.setdefault(id(node.inputs[0]), (node.inputs[0], []))[1].append(node)
    yield from found.values()


def smooth(
    model: Model,
    channels: Mapping[str, Channels],
    backend: Backend,
    exponents: Mapping[str, float] | None = None,
) -> list[Smoothed]:
    """Smooth what pays in `model`, which is changed; it computes the same.

    Given `exponents` by tensor, these and no others are smoothed.
    """
    scheme, placement = backend.scheme, backend.placement
    may_multiply = "Mul" not in placement.inputs or "Mul" in placement.joining
    done = []
    for tensor, layers in list(groups(model)):
        seen = channels.get(tensor.name)
        if seen is None or (exponents is not None and tensor.name not in exponents):
            continue
        norm = _norm_before(model, tensor, layers)
        if norm is None and not may_multiply:
            continue
        weights = [_matrix(layer) for layer in layers]  # not copied
        if any(len(w) != seen.low.size for w in weights):
            continue
        tried = EXPONENTS if exponents is None else [exponents[tensor.name]]
        best = best_factors(weights, seen, scheme, tried)
        if exponents is None and best.gain < WORTH:
            continue
        name = _divide(model, tensor, layers, best.factors, norm)
        for layer in layers:
            _multiply(model, layer, best.factors)
        done.append(Smoothed(tensor.name, name, *best))
    return done


class Best(NamedTuple):
    """The best way to smooth a tensor, as in `Smoothed`."""

    exponent: float
    factors: Array
    gain: float
    margin: float


def best_factors(
    weights: Sequence[Array],
    seen: Channels,
    scheme: Scheme,
    exponents: Iterable[float] = EXPONENTS,
) -> Best:
    """The exponent, the factors s and the margin with the least noise.

    The `weights` multiply one tensor: together they are one matrix, some rows of which are in
    memory at a time.
    """
    low, high = np.minimum(seen.low, 0.0), np.maximum(seen.high, 0.0)
    reach = np.maximum(np.maximum(-low, high), 1e-6)
    width = sum(weight.shape[1] for weight in weights)
    every = -(-width // MOST_COLUMNS)
    found = [_facts(weights, at, every) for at in row_slices(reach.size, width)]
    largest, rows, some = (np.concatenate(each) for each in zip(*found, strict=True))
    largest = np.maximum(largest, 1e-8)
    power = seen.squares
    (lo, hi), (least, most) = scheme.activation.range, scheme.weight.range
    symmetric = scheme.activation.symmetric

    share = width / some.shape[1]

    def noise(factors: Array, margins: Sequence[float]) -> tuple[float, float]:
        """Twelve times N + C with the best margin, and this margin."""
        ends = np.array([-(low / factors).min(), (high / factors).max()])
        ends = np.full(2, ends.max()) if symmetric else ends
        steps = (some * factors[:, None]).max(axis=0) / max(-least, most)
        read = (ends.sum() / (hi - lo)) ** 2 * (rows * factors**2).sum()
        written = share * np.square(steps).sum() * (power / factors**2).sum()
        found = []
        for margin in margins:
            cut = _beyond(-low, -seen.average, margin * ends[0] * factors, seen.values)
            cut += _beyond(high, seen.average, margin * ends[1] * factors, seen.values)
            found.append((float(margin**2 * read + written + 12 * (cut * rows).sum()), margin))
        return min(found)

    plain, _ = noise(np.ones_like(reach), (1.0,))
    candidates = []
    for exponent in exponents:
        factors = reach**exponent / largest ** (1 - exponent)
        factors = (factors / np.exp(np.log(factors).mean())).astype(np.float32).astype(np.float64)
        candidates.append((*noise(factors, MARGINS), float(exponent), factors))
    left, margin, exponent, factors = min(candidates, key=lambda each: each[0])
    return Best(exponent, factors.astype(np.float32), plain / max(left, 1e-30), margin)


def _beyond(largest: Array, average: Array, edges: Array, count: int) -> Array:
    """The expected square of what an edge cuts off a value; the `largest` of `count` are known.

    Channels without values on this side of 0 have none there.
    """
    count = max(count, 2)
    away = np.where(largest > 0, largest - average, 0.0)
    tail = np.maximum(np.maximum(away, np.quantile(away, USUAL)) / np.log(count), 1e-12)
    return np.asarray(2 * tail**2 / count * np.exp(-np.maximum(edges - largest, 0.0) / tail))


def _facts(weights: Sequence[Array], at: slice, every: int) -> tuple[Array, Array, Array]:
    r"""Of some rows: the largest magnitudes, the sums of squares, magnitudes of every n-th column.

    \sum_jo (s_j W_jo)^2 needs no columns; the steps are those of some of them.
    """
    part = np.concatenate([np.asarray(weight[at], np.float64) for weight in weights], axis=1)
    some = np.abs(part[:, ::every])
    return np.abs(part).max(axis=1), np.square(part).sum(axis=1), some


def _matrix(layer: gs.Node) -> Array:
    weight = array(layer.inputs[1])
    assert weight is not None
    return weight.T if layer.attrs.get("transB") else weight


def _multiply(model: Model, layer: gs.Node, factors: Array) -> None:
    old = layer.inputs[1]
    weight = array(old)
    assert weight is not None
    spread = np.broadcast_to(
        factors if layer.attrs.get("transB") else factors[:, None], weight.shape
    )
    parts = (weight[at].astype(np.float64) * spread[at] for at in blocks(weight.shape))
    new = assembled(weight.shape, weight.dtype, parts)
    set_input(layer, 1, constant(model, f"{old.name}.smoothed", new))


def _norm_before(model: Model, tensor: gs.Tensor, layers: list[gs.Node]) -> gs.Node | None:
    """The LayerNormalization that produces `tensor` for these layers alone."""
    norm = producer(tensor, "LayerNormalization")
    if norm is None or len(users(tensor)) != len(layers) or model.is_output(tensor):
        return None
    parts = [array(part) for part in norm.inputs[1:]]
    sizes = {value.shape for value in parts if value is not None}
    return norm if len(sizes) == 1 and all(p is not None and p.ndim == 1 for p in parts) else None


def _divide(
    model: Model, tensor: gs.Tensor, layers: list[gs.Node], factors: Array, norm: gs.Node | None
) -> str:
    """Let the layers read x / s; the name of that tensor."""
    dtype = np.dtype(tensor.dtype or np.float32)
    if norm is not None:
        for index, part in list(enumerate(norm.inputs))[1:]:
            value = (array(part) / factors).astype(dtype)
            set_input(norm, index, constant(model, f"{part.name}.smoothed", value))
        return str(tensor.name)
    result = variable(model, f"{tensor.name}.smoothed", like=tensor)
    inverse = constant(model, f"{tensor.name}.smoothing", (1 / factors).astype(dtype))
    home = layers[0].owner
    new_node(model, "Mul", [tensor, inverse], [result], name=f"{tensor.name}.smooth", graph=home)
    for layer in layers:
        set_input(layer, 0, result)
    return str(result.name)


__all__ = ["Smoothed", "groups", "smooth"]
