"""One-operator models of old opsets, with inputs, and how a raised model is checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import (
    ModelProto,
    TensorProto,
    helper,
    numpy_helper,
)

from onnxq.errors import UnsupportedModelError
from onnxq.graph import from_proto
from onnxq.opsets.opset_upgrade import MOVED
from tests.checks.same_model import assert_same

TARGETS = (13, 17, 21, 25)
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


X = floats(2, 4, 6)
IMAGE = floats(1, 2, 6, 4)
ONES = floats(2, 1, 6, 1)
WORDS = floats(3, 1, 4)
POINTS = floats(1, 3, 3, 2) / 2
FIVE = [np.float32([1, 2, 3, 4]) * k for k in (1, 2, -1, 3)]

Case = tuple[ModelProto, dict[str, np.ndarray]]


def case(
    opset: int,
    op: str,
    *inputs: np.ndarray,
    fixed: tuple[np.ndarray | None, ...] = (),
    outputs: tuple[int, ...] = (TensorProto.FLOAT,),
    declared: bool = True,
    **attrs: Any,
) -> Case:
    """A model with one `op`: `inputs` are fed, `fixed` follow as initializers (None: left out).

    Its first input comes out of a Neg, with or without a declared type: nothing may depend on
    shape inference.
    """
    fed = [f"in{i}" for i in range(len(inputs))]
    held = [f"fixed{i}" if v is not None else "" for i, v in enumerate(fixed)]
    made = [f"out{i}" for i in range(len(outputs))]
    results = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip(made, outputs, strict=True)
    ]
    nodes = [
        helper.make_node("Neg", [fed[0]], ["first"]),
        helper.make_node(op, ["first", *fed[1:], *held], made, name=f"the {op}", **attrs),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in zip(fed, inputs, strict=True)
        ],
        results,
        [numpy_helper.from_array(v, n) for n, v in zip(held, fixed, strict=True) if v is not None],
    )
    if declared:
        graph.value_info.append(helper.make_tensor_value_info("first", 1, inputs[0].shape))
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=4)
    return model, dict(zip(fed, inputs, strict=True))


INT64 = TensorProto.INT64
EMPTY = np.empty(0, np.float32)

CASES: dict[str, Case] = {
    "Slice-10": case(9, "Slice", X, starts=[1, -3], ends=[9, -1], axes=[1, 2]),
    "Slice-10 without axes": case(9, "Slice", X, starts=[0, 1], ends=[1, 3]),
    "TopK-10": case(9, "TopK", X, outputs=(1, INT64), k=3, axis=2),
    "Clip-11": case(7, "Clip", X, min=-0.5, max=0.5),
    "Clip-11 one bound": case(9, "Clip", X, declared=False, max=0.5),
    "Clip-11 no bound": case(10, "Clip", X),
    "Pad-11": case(10, "Pad", X, pads=[0, 1, 2, 0, 0, 1], value=1.5),
    "Pad-11 reflect": case(9, "Pad", X, pads=[0, 1, 2, 0, 0, 1], mode="reflect"),
    "Dropout-10": case(7, "Dropout", X, ratio=0.3),
    "Dropout-12": case(10, "Dropout", X, ratio=0.3),
    "Dropout-12 default": case(10, "Dropout", X),
    "Squeeze-13": case(11, "Squeeze", ONES, axes=[1, -1]),
    "Squeeze-13 all": case(9, "Squeeze", ONES),
    "Unsqueeze-13": case(11, "Unsqueeze", X, axes=[0, -1]),
    "Split-13": case(11, "Split", X, outputs=(1, 1), axis=2, split=[2, 4]),
    "Split-18": case(11, "Split", X, outputs=(1, 1, 1), axis=2),
    "Split-18 sizes as input": case(
        13, "Split", X, fixed=(np.int64([1, 5]),), outputs=(1, 1), axis=-1
    ),
    "ReduceSum-13": case(11, "ReduceSum", X, axes=[1], keepdims=0),
    "ReduceSum-13 all": case(11, "ReduceSum", X),
    **{
        f"{op}-18": case(11, op, abs(X) * -1, axes=[0, -1])
        for op, version in MOVED
        if version == 18
    },
    "Softmax-13": case(9, "Softmax", X, axis=1),
    "Softmax-13 default": case(11, "Softmax", X, declared=False),
    "Softmax-13 last": case(9, "Softmax", X, axis=2),
    "Softmax-13 last but undeclared": case(9, "Softmax", X, declared=False, axis=2),
    "Softmax-13 negative": case(11, "Softmax", X, axis=-2),
    "Softmax-13 first": case(11, "Softmax", X, axis=0),
    "LogSoftmax-13": case(9, "LogSoftmax", X, axis=1),
    "Hardmax-13": case(9, "Hardmax", X, axis=1),
    "Upsample-9": case(7, "Upsample", IMAGE, scales=[1.0, 1.0, 2.0, 1.5]),
    "Upsample-9 linear": case(7, "Upsample", IMAGE, mode="linear", scales=[1.0, 1.0, 2.0, 1.5]),
    "Upsample-10": case(9, "Upsample", IMAGE, np.float32([1, 1, 1.7, 3])),
    "Resize-11 enlarge": case(10, "Resize", IMAGE, fixed=(np.float32([1, 1, 2.3, 1.5]),)),
    "Resize-11 shrink": case(10, "Resize", IMAGE, fixed=(np.float32([1, 1, 0.6, 0.5]),)),
    "Resize-11 linear": case(10, "Resize", IMAGE, np.float32([1, 1, 0.6, 1.5]), mode="linear"),
    "Resize-13 sizes": case(
        11, "Resize", IMAGE, fixed=(EMPTY, EMPTY, np.int64([1, 2, 9, 5])), mode="linear"
    ),
    "Resize-13 scales": case(
        11,
        "Resize",
        IMAGE,
        fixed=(EMPTY, np.float32([1, 1, 2, 1.5])),
        nearest_mode="round_prefer_ceil",
    ),
    "Scatter-11": case(9, "Scatter", X, RNG.integers(0, 4, (2, 1, 6)), floats(2, 1, 6), axis=1),
    "BatchNormalization-9": case(
        7, "BatchNormalization", X, fixed=(*FIVE[:3], abs(FIVE[3])), epsilon=0.01, spatial=1
    ),
    "BatchNormalization-14": case(9, "BatchNormalization", X, fixed=(*FIVE[:3], abs(FIVE[3]))),
    "GridSample-20": case(16, "GridSample", IMAGE, POINTS),
    "GridSample-20 cubic": case(16, "GridSample", IMAGE, POINTS, mode="bicubic", align_corners=1),
    "GridSample-20 nearest": case(16, "GridSample", IMAGE, POINTS, mode="nearest"),
    "RoiAlign-16": case(
        10,
        "RoiAlign",
        IMAGE,
        fixed=(np.float32([[0.3, 0.2, 3.1, 4.4]]), np.int64([0])),
        output_height=2,
        output_width=3,
        sampling_ratio=2,
    ),
    "DFT-20": case(17, "DFT", floats(2, 4, 6, 1)),
    "DFT-20 axis": case(17, "DFT", floats(2, 4, 6, 1), axis=2, onesided=1),
    "DFT-20 length": case(17, "DFT", floats(2, 4, 6, 1), fixed=(np.array(5),), axis=1),
    "GroupNormalization-21": case(
        18, "GroupNormalization", X, fixed=(np.float32([2, 3]), np.float32([-1, 1])), num_groups=2
    ),
    # No rule: carried by the schemas alone.
    "MaxPool": case(7, "MaxPool", IMAGE, kernel_shape=[2, 2], pads=[0, 0, 1, 1], strides=[2, 2]),
    "AveragePool": case(
        7, "AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "Gemm": case(7, "Gemm", X[0], fixed=(floats(5, 6), floats(5)), transB=1, alpha=0.5),
    "LSTM": case(7, "LSTM", WORDS, fixed=(floats(1, 8, 4), floats(1, 8, 2)), hidden_size=2),
    "GRU": case(7, "GRU", WORDS, fixed=(floats(1, 6, 4), floats(1, 6, 2)), hidden_size=2),
    "QuantizeLinear": case(
        10, "QuantizeLinear", X, fixed=(np.float32(0.1), np.uint8(9)), outputs=(TensorProto.UINT8,)
    ),
    "ArgMax": case(9, "ArgMax", X, outputs=(INT64,), axis=1),
    "Cast": case(9, "Cast", X, outputs=(TensorProto.INT32,), to=TensorProto.INT32),
    "Reshape": case(7, "Reshape", X, fixed=(np.int64([0, -1]),)),
    "Flatten": case(7, "Flatten", X, axis=2),
    "DepthToSpace": case(9, "DepthToSpace", floats(1, 8, 2, 2), blocksize=2),
    "InstanceNormalization": case(
        7, "InstanceNormalization", X, fixed=(np.float32([1, 2, 3, 4]), np.float32([0, 1, 0, 1]))
    ),
    "Conv": case(7, "Conv", IMAGE, fixed=(floats(3, 2, 3, 3), floats(3)), pads=[1, 1, 1, 1]),
    "LRN": case(7, "LRN", IMAGE, size=3),
    "PRelu": case(7, "PRelu", X, fixed=(np.float32([[0.1], [0.2], [0.3], [0.4]]),)),
}
STEPS = [
    (name, target)
    for name, (model, _) in CASES.items()
    for target in TARGETS
    if target > model.opset_import[0].version
]


def raised(proto: ModelProto, target: int) -> ModelProto:
    twin = ModelProto()
    twin.CopyFrom(proto)
    model = from_proto(twin)
    model.require_opset(target, "test")
    model.check()
    return model.to_proto()


def refused(proto: ModelProto, target: int, message: str) -> None:
    """Raising is refused with the name of the node, and the model stays as it was."""
    twin = ModelProto()
    twin.CopyFrom(proto)
    model = from_proto(twin)
    with pytest.raises(UnsupportedModelError, match=message):
        model.require_opset(target, "test")
    assert_same(proto, model.to_proto())
    assert model.upgrades == []
