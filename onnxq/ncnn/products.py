"""Gemm and MatMul, in int8 where input and weight are quantized.

ncnn's InnerProduct multiplies each row of a matrix with a weight; an input with more axes is laid
out as rows for it. A product of two activations is MatMul, in float, and so is one with a constant
that no InnerProduct multiplies.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of
from onnxq.ncnn.kernels import steps_of
from onnxq.ncnn.network import Network, NotInNcnn, dims, inverse, layer_name
from onnxq.ncnn.program import Value
from onnxq.operators.op_kind import is_bias_of
from onnxq.quant.qparams import Array


def linear(net: Network, node: gs.Node) -> None:
    """Gemm and MatMul; a MatMul takes the Add of its bias along."""
    x, w, b = inputs_of(node, 3)
    assert x is not None and w is not None
    plain = net.constant(w)
    if node.op == "MatMul" and (plain is None or plain.ndim != 2 or net.constant(x) is not None):
        _matmul(net, node)
        return
    if plain is None:
        raise NotInNcnn("its weight is computed at run time", "write it as MatMul and Add")
    if node.attrs.get("transA", 0):
        raise NotInNcnn("transA is set", "write it as Transpose and MatMul")
    values, params = net.weight(w)
    across = bool(node.attrs.get("transB", 0))
    outputs = values.shape[0 if across else 1]
    alpha, beta = (np.float32(node.attrs.get(k, 1.0)) for k in ("alpha", "beta"))
    bias = None if b is None else beta * net.real(b)
    last, added = _with_bias(net, node)
    if added is not None:
        bias = net.real(added)
    if bias is not None and (
        bias.size not in (1, outputs) or bias.shape[-1:] not in ((), (bias.size,))
    ):
        raise NotInNcnn(
            f"its bias has shape {bias.shape} for {outputs} outputs", "add it in an Add of its own"
        )
    settings: dict[int, Value] = {0: outputs, 1: int(bias is not None), 2: values.size}
    biases = [] if bias is None else [np.broadcast_to(bias.reshape(-1), (outputs,))]
    quantized = net.quantized(x) if params is not None and alpha > 0 else None
    weights: list[Array]
    if quantized is None or params is None:
        blob, rows = net.blob(x), alpha * plain
        weights = [np.ascontiguousarray(rows if across else rows.T), *biases]
    else:
        blob = quantized[0]
        codes = params.quantize(values).astype(np.int8)
        steps = alpha * steps_of(params, 0 if across else 1, outputs)
        settings[8] = 2
        weights = [np.ascontiguousarray(codes if across else codes.T), *biases]
        weights += [inverse(steps), inverse(quantized[1].scale)]
    _inner_product(net, node, net.shape(x), blob, last, settings, weights)


def _inner_product(
    net: Network,
    node: gs.Node,
    shape: tuple[int, ...],
    blob: str,
    last: gs.Node,
    settings: dict[int, Value],
    weights: list[Array],
) -> None:
    """The layer, between reshapes where its input is not a vector or several rows."""
    name, top = layer_name(node), net.made(last.outputs[0])
    rows = math.prod(shape[:-1])
    if len(shape) == 1 or (len(shape) == 2 and rows > 1):
        net.add("InnerProduct", name, [blob], [top], settings, weights)
        return
    # ncnn takes a single row for a vector and gives one.
    before, after = net.temporary(f"{blob}.rows"), net.temporary(f"{top}.rows")
    net.reshape(f"{name}.rows", blob, shape[-1:] if rows == 1 else (rows, shape[-1]), before)
    net.add("InnerProduct", name, [before], [after], settings, weights)
    outputs = settings[0]
    assert isinstance(outputs, int)
    net.reshape(f"{name}.shape", after, (*shape[:-1], outputs), top)


def _with_bias(net: Network, node: gs.Node) -> tuple[gs.Node, gs.Tensor | None]:
    """The last node of a layer, and the bias that its second one adds."""
    (made,) = node.outputs
    adds = [n for n in made.outputs if is_bias_of(n) is node]
    if node.op != "MatMul" or len(made.outputs) != 1 or not adds or net.model.is_output(made):
        return node, None
    net.done.add(id(adds[0]))
    return adds[0], adds[0].inputs[1 if adds[0].inputs[0] is made else 0]


def _matmul(net: Network, node: gs.Node) -> None:
    """A product of matrices in float, stacks of them one by one."""
    constants = [net.constant(t) for t in node.inputs]
    shapes = []
    rank = len(net.shape(node.outputs[0]))
    for tensor, values in zip(node.inputs, constants, strict=True):
        shape = net.shape(tensor) if values is None else values.shape
        if values is not None and len(shape) == rank + 1 and shape[0] == 1:
            shape = shape[1:]
        shapes.append((1,) * (rank - len(shape)) + shape)
    if rank < 2 or len({len(s) for s in shapes}) > 1 or shapes[0][:-2] != shapes[1][:-2]:
        raise NotInNcnn(
            f"shapes {shapes[0]} and {shapes[1]} are not multiplied matrix by matrix",
            "expand both inputs to the same leading axes before it",
        )
    bottoms = []
    for tensor, values, shape in zip(node.inputs, constants, shapes, strict=True):
        if values is None:
            bottoms.append(net.blob(tensor))
            continue
        held = net.temporary(tensor.name)
        net.add("MemoryData", f"{layer_name(node)}.constant", [], [held], dims(shape), [values])
        bottoms.append(held)
    net.add("MatMul", layer_name(node), bottoms, [net.made(node.outputs[0])])
