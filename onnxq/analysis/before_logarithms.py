r"""Operators whose results are only seen through a logarithm.

Rounding to a grid of step s errs by up to s / 2 whatever the value, and

    d log|x| = dx / x

so that small values, which a logarithm is there to show, are lost: in a spectrum of 60 dB all but
the upper 48 dB of 8 bits. Audio networks begin so: a Conv that is a Fourier transform, squares,
their sum, a MatMul with mel filters, Log. These operators are found from the logarithm backwards,
as far as there are only sums, products, powers and moves; any other activation ends the walk. What
only asks for a size sees no values.
"""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.graph import Model

_LAYERS = ("Conv", "MatMul", "Gemm")
_POWERS = (
    "Mul",
    "Add",
    "Sub",
    "Neg",
    "Sqrt",
    "Pow",
    "Abs",
    "ReduceSum",
    "ReduceSumSquare",
    "ReduceL2",
)
_BOUNDS = ("Max", "Clip")
_MOVES = (
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Slice",
    "Split",
    "Concat",
    "Pad",
    "Identity",
    "Cast",
)
_SIZES = ("Shape", "Size")
_THROUGH = frozenset((*_LAYERS, *_POWERS, *_BOUNDS, *_MOVES))


def before_logarithms(model: Model) -> list[gs.Node]:
    """The nodes whose results every reader passes on to a Log, in no other way than these."""
    inner = {id(n): n for n in model.nodes() if n.op in _THROUGH}
    outputs = {id(t) for graph in model.graphs() for t in graph.outputs}
    found: dict[int, gs.Node] = {}
    waiting = [n for log in model.nodes("Log") for t in log.inputs for n in t.inputs]
    while waiting:
        node = waiting.pop()
        if id(node) in found or id(node) not in inner:
            continue
        readers = [u for tensor in node.outputs for u in tensor.outputs if u.op not in _SIZES]
        seen = any(id(tensor) in outputs for tensor in node.outputs)
        if seen or any(user.op != "Log" and id(user) not in found for user in readers):
            continue  # asked again when the last of its readers is found
        found[id(node)] = node
        waiting += [before for tensor in node.inputs for before in tensor.inputs]
    return list(found.values())


__all__ = ["before_logarithms"]
