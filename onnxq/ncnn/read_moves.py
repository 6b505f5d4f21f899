"""ncnn's layers that hold, copy, move, join, cut and pad, as ONNX."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from onnxq.ncnn.axis_orders import order_of
from onnxq.ncnn.moves import PADDINGS
from onnxq.ncnn.program import Layer
from onnxq.ncnn.read_graph import Graph, shape_of


def input_(graph: Graph, layer: Layer) -> None:
    """An input."""
    shape = shape_of(layer)
    (top,) = layer.tops
    graph.proto.input.append(helper.make_tensor_value_info(top, TensorProto.FLOAT, [1, *shape]))
    graph.rank[top] = 1 + len(shape)


def split(graph: Graph, layer: Layer) -> None:
    """Copies of a blob."""
    for top in layer.tops:
        graph.alias(top, layer.bottoms[0])


def memory(graph: Graph, layer: Layer) -> None:
    """A constant."""
    shape = shape_of(layer)
    graph.constant(layer.tops[0], layer.weights[0].reshape(1, *shape))
    graph.rank[layer.tops[0]] = 1 + len(shape)


def reshape(graph: Graph, layer: Layer) -> None:
    """Another shape."""
    shape = shape_of(layer)
    wanted = graph.constant(f"{layer.name}.shape", np.array([1, *shape], np.int64))
    graph.node("Reshape", [graph.name(layer.bottoms[0]), wanted], layer.tops[0], layer.name)
    graph.rank[layer.tops[0]] = 1 + len(shape)


def permute(graph: Graph, layer: Layer) -> None:
    """Another order of axes."""
    rank, number = graph.rank[layer.bottoms[0]], layer.integer(0, 0)
    perm = order_of(number, rank - 1)
    if perm is None:
        raise layer.error(f"order {number} of {rank - 1} axes is not read")
    moved = [0, *(p + 1 for p in perm)]
    graph.node("Transpose", [graph.name(layer.bottoms[0])], layer.tops[0], layer.name, perm=moved)
    graph.rank[layer.tops[0]] = rank


def slice_(graph: Graph, layer: Layer) -> None:
    """Consecutive parts along one axis."""
    sizes, axis = layer.integers(0), layer.integer(1)
    rank = graph.rank[layer.bottoms[0]]
    fits = len(sizes) == len(layer.tops) and min(sizes) > 0
    if not fits or not 0 <= axis < rank - 1:
        raise layer.error("its sizes or its axis do not fit its blobs")
    wanted = graph.constant(f"{layer.name}.sizes", np.array(sizes, np.int64))
    source = graph.name(layer.bottoms[0])
    graph.node("Split", [source, wanted], list(layer.tops), layer.name, axis=axis + 1)
    graph.rank |= dict.fromkeys(layer.tops, rank)


def crop(graph: Graph, layer: Layer) -> None:
    """A range of some axes."""
    starts, ends, axes = (layer.integers(key) for key in (9, 10, 11))
    rank = graph.rank[layer.bottoms[0]]
    fits = len(starts) == len(ends) == len(axes) > 0 and axes == tuple(sorted({*axes}))
    if not fits or not 0 <= axes[0] <= axes[-1] < rank - 1:
        raise layer.error("its starts, ends and axes do not fit each other and its input")
    if any(not 0 <= s < e for s, e in zip(starts, ends, strict=True)):
        raise layer.error("a range has no elements")
    operands = [graph.name(layer.bottoms[0])]
    for what, values in (("starts", starts), ("ends", ends), ("axes", [a + 1 for a in axes])):
        operands.append(graph.constant(f"{layer.name}.{what}", np.array(values, np.int64)))
    graph.node("Slice", operands, layer.tops[0], layer.name)
    graph.rank[layer.tops[0]] = rank


def padding(graph: Graph, layer: Layer) -> None:
    """Constants, edges or reflections around a blob."""
    rank, number = graph.rank[layer.bottoms[0]], layer.integer(4)
    modes = {v: k for k, v in PADDINGS.items()}
    if number not in modes or rank > 4:
        raise layer.error(f"type {number} of {rank - 1} axes is not read")
    i = layer.integer
    front = (i(7), i(8)) if 7 in layer.params or 8 in layer.params else (0, 0)
    both = [front, (i(0), i(1)), (i(2), i(3))]
    if min(v for pair in both for v in pair) < 0 or (7 in layer.params and front == (0, 0)):
        raise layer.error("a pad is negative, or none where it is stated")
    unused, both = both[: 4 - rank], both[4 - rank :]
    if any(pair != (0, 0) for pair in unused) or (number and front != (0, 0)):
        raise layer.error(f"it pads an axis that its input of {rank - 1} axes does not have")
    pads = [0, *(b for b, _ in both), 0, *(e for _, e in both)]
    value = np.float32(layer.number(5, 0.0))
    operands = [graph.name(layer.bottoms[0])]
    operands.append(graph.constant(f"{layer.name}.pads", np.array(pads, np.int64)))
    operands.append(graph.constant(f"{layer.name}.value", np.asarray(value)))
    graph.node("Pad", operands, layer.tops[0], layer.name, mode=modes[number])
    graph.rank[layer.tops[0]] = rank


def pixel_shuffle(graph: Graph, layer: Layer) -> None:
    """Channels to squares of positions."""
    rules = {"blocksize": layer.integer(0), "mode": "DCR" if layer.integer(1) else "CRD"}
    if layer.integer(0) < 1 or graph.rank[layer.bottoms[0]] != 4:
        raise layer.error("its factor is not positive, or its input has no height and width")
    graph.node("DepthToSpace", [graph.name(layer.bottoms[0])], layer.tops[0], layer.name, **rules)
    graph.rank[layer.tops[0]] = 4
