"""A float model with every kind of weight, and random quantization tables for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Model, from_proto
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype

SHAPES = {
    "conv.w": ((6, 4, 3, 3), 0, 1),
    "up.w": ((6, 2, 2, 2), 1, 0),
    "gemm.w": ((8, 5), 1, 0),
    "gemm_t.w": ((4, 5), 0, 1),
    "mat.w": ((4, 6), 1, 0),
}
"""Shape, output-channel axis and summed axis of each weight."""
BIASES = {"conv.b": 6, "gemm.b": 5}
ACTIVATIONS = ("x", "c", "u", "p", "f", "g", "h", "y")


def model() -> Model:
    """Conv, ConvTranspose, Gemm either way and MatMul in a row."""
    random = np.random.default_rng(0)
    shapes = {name: shape for name, (shape, _, _) in SHAPES.items()}
    shapes |= {name: (size,) for name, size in BIASES.items()}
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Conv", ["x", "conv.w", "conv.b"], ["c"], pads=[1, 1, 1, 1]),
            node("ConvTranspose", ["c", "up.w"], ["u"], strides=[2, 2]),
            node("AveragePool", ["u"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
            node("Flatten", ["p"], ["f"]),
            node("Gemm", ["f", "gemm.w", "gemm.b"], ["g"]),
            node("Gemm", ["g", "gemm_t.w"], ["h"], transB=1),
            node("MatMul", ["h", "mat.w"], ["y"]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6])],
        [
            numpy_helper.from_array(random.normal(0, 0.3, shape).astype(np.float32), name)
            for name, shape in shapes.items()
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    return from_proto(helper.make_model(graph, opset_imports=opset, ir_version=8))


SCALES = st.floats(2.0**-40, 2.0**20, width=32)


def code_ranges(signed: bool) -> st.SearchStrategy[tuple[str, int, int]]:
    """Type and codes of 2 to 8 or 16 bits."""
    made = []
    for bits in (2, 3, 4, 7, 8, 16):
        lo, hi = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        held = next(b for b in (2, 4, 8, 16) if b >= bits)
        made.append((f"{'int' if signed else 'uint'}{held}", lo, hi))
    return st.sampled_from(made)


@st.composite
def rows(draw: st.DrawFn, name: str, channels: bool, blocks: bool) -> QParams:
    """A row for one tensor of the model, with whole ranges of codes.

    Scales of blocks are the same at all positions of a kernel.
    """
    if name in BIASES:
        size = BIASES[name]
        scale = draw(st.lists(SCALES, min_size=size, max_size=size))
        more: dict[str, Any] = {"axis": 0, "role": Role.BIAS}
        return QParams(name, qtype("int32"), np.array(scale), np.zeros(()), **more)
    kind, lo, hi = draw(st.booleans().flatmap(code_ranges))
    shape: tuple[int, ...] = ()
    more = {"lo": lo, "hi": hi}
    if name in SHAPES:
        whole, channel, summed = SHAPES[name]
        more["role"] = Role.WEIGHT
        form = draw(st.sampled_from(["tensor", *["channel"] * channels, *["block"] * blocks]))
        if form == "channel":
            shape, more["axis"] = (whole[channel],), channel
        elif form == "block":
            more["axis"], more["block"] = summed, 2
            if whole[summed] % 2:  # 5 positions of gemm_t.w
                more["block"] = whole[summed]
            shape = tuple(
                size // more["block"] if a == summed else size for a, size in enumerate(whole)
            )
    thin = shape
    if more.get("block"):
        thin = tuple(1 if a > 1 else size for a, size in enumerate(shape))
    count = int(np.prod(thin))
    scale = np.array(draw(st.lists(SCALES, min_size=count, max_size=count)), np.float32)
    zero = draw(st.lists(st.integers(lo, hi), min_size=count, max_size=count))
    scale, zero_point = (
        np.broadcast_to(np.reshape(v, thin), shape) for v in (scale, np.array(zero))
    )
    return QParams(name, qtype(kind), scale, zero_point, **more)


@st.composite
def tables(draw: st.DrawFn, channels: bool = True, blocks: bool = False) -> QParamTable:
    """Some tensors of the model, each once, activations first as files group them."""
    params = draw(st.lists(st.sampled_from([*SHAPES, *BIASES]), unique=True))
    names = draw(st.lists(st.sampled_from(ACTIVATIONS), unique=True)) + params
    return QParamTable([draw(rows(name, channels, blocks)) for name in names])


def one_zero_point(**options: bool) -> st.SearchStrategy[QParamTable]:
    """The same, signed weights with one zero point each: "symmetric" grids have no others."""

    def settled(table: QParamTable) -> QParamTable:
        return QParamTable(
            [
                row.with_(zero_point=row.zero_point.reshape(-1)[0]) if row.qtype.signed else row
                for row in table
            ]
        )

    return tables(**options).map(settled)
