"""The networks that are rewritten: a long chain of small layers, and a file with large weights."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8
CHANNELS, SIZE = 8, 4
EPSILON = 1e-5

LARGE_WEIGHTS, LARGE_SIDE = 24, 4096
"""24 square float32 matrices of 64 MiB: 1.5 GiB."""


CODES_SIDE = 24576
"""A square int8 matrix of 576 MiB."""
FLOAT_WEIGHTS, FLOAT_SIDE = 69, 4096
"""69 square float32 matrices of 64 MiB, each in front of its quantizer: 4.3 GiB."""


@dataclass(frozen=True)
class Chain:
    """A network, and the scales it is to be quantized with."""

    data: bytes
    """The serialized ModelProto."""
    activations: dict[str, tuple[float, int]]
    """Input of each Conv -> scale and zero point of its uint8 codes."""
    weights: dict[str, np.ndarray]
    """Weight of each Conv -> int8 scales per output channel, fit for the folded weight."""


def chain(nodes: int, seed: int = 0) -> Chain:
    """`nodes` / 4 blocks of Conv, BatchNormalization, Relu, Add, as PyTorch exports them.

    Every other Conv is 3x3 with padding, the rest 1x1; every fourth has a bias.
    """
    rng = np.random.default_rng(seed)
    made: list[NodeProto] = []
    initializers: list[TensorProto] = []
    activations: dict[str, tuple[float, int]] = {}
    weights: dict[str, np.ndarray] = {}

    def stored(name: str, value: np.ndarray) -> str:
        initializers.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    x = "input"
    for i in range(nodes // 4):
        base, path = f"layers.{i}", f"/layers/layers.{i}"
        side = 3 if i % 2 else 1
        weight = rng.normal(0.0, 0.05 / side, (CHANNELS, CHANNELS, side, side)).astype(np.float32)
        gamma = rng.uniform(0.5, 1.5, CHANNELS).astype(np.float32)
        variance = rng.uniform(0.5, 1.5, CHANNELS).astype(np.float32)
        inputs = [x, stored(f"{base}.conv.weight", weight)]
        if i % 4 == 0:
            inputs.append(stored(f"{base}.conv.bias", rng.normal(0.0, 0.1, CHANNELS)))
        conv, norm, relu, out = (
            f"{path}/{name}_output_0" for name in ("conv/Conv", "bn/BatchNorm", "relu/Relu", "Add")
        )
        made.append(
            helper.make_node(
                "Conv",
                inputs,
                [conv],
                name=f"{path}/conv/Conv",
                kernel_shape=[side, side],
                pads=[side // 2] * 4,
                strides=[1, 1],
                dilations=[1, 1],
                group=1,
            )
        )
        statistics = [
            stored(f"{base}.bn.weight", gamma),
            stored(f"{base}.bn.bias", rng.normal(0.0, 0.1, CHANNELS)),
            stored(f"{base}.bn.running_mean", rng.normal(0.0, 0.1, CHANNELS)),
            stored(f"{base}.bn.running_var", variance),
        ]
        made.append(
            helper.make_node(
                "BatchNormalization",
                [conv, *statistics],
                [norm],
                name=f"{path}/bn/BatchNormalization",
                epsilon=EPSILON,
                momentum=0.9,
            )
        )
        made.append(helper.make_node("Relu", [norm], [relu], name=f"{path}/relu/Relu"))
        made.append(helper.make_node("Add", [relu, x], [out], name=f"{path}/Add"))

        activations[x] = (float(rng.uniform(0.025, 0.03)) * (1 + 0.02 * i), 128)
        largest = np.abs(weight).max(axis=(1, 2, 3)) * gamma / np.sqrt(variance)
        weights[f"{base}.conv.weight"] = (largest / 127).astype(np.float32)
        x = out

    shape = [1, CHANNELS, SIZE, SIZE]
    graph = helper.make_graph(
        made,
        "chain",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
        initializers,
    )
    return Chain(_model(graph).SerializeToString(), activations, weights)


@contextmanager
def large_model(weights: int = LARGE_WEIGHTS) -> Iterator[Path]:
    """A chain of MatMuls whose weights lie in a data file, in a folder that goes at the end."""
    names = [f"weight_{i}" for i in range(weights)]
    nodes = [
        helper.make_node("MatMul", [f"x{i}", name], [f"x{i + 1}"], name=f"matmul_{i}")
        for i, name in enumerate(names)
    ]
    with _stored(nodes, names, TensorProto.FLOAT, LARGE_SIDE, []) as path:
        yield path


@contextmanager
def quantized_model(weights: int, side: int, *, floats: bool) -> Iterator[Path]:
    """The same with quantizers: uint8 activations, int8 weights with a scale per output channel.

    Weights are stored codes or, where `floats`, float values in front of a QuantizeLinear.
    """
    names = [f"weight_{i}" for i in range(weights)]
    nodes: list[NodeProto] = []

    def node(op: str, source: str, grid: str, made: str, **attrs: int) -> str:
        inputs = [source, f"{grid}_scale", f"{grid}_zero"]
        nodes.append(helper.make_node(op, inputs, [made], name=made, **attrs))
        return made

    for i, name in enumerate(names):
        codes = node("QuantizeLinear", name, "w", f"{name}.q", axis=1) if floats else name
        weight = node("DequantizeLinear", codes, "w", f"{name}.dq", axis=1)
        x = node("QuantizeLinear", f"x{i}", "x", f"x{i}.q")
        inputs = [node("DequantizeLinear", x, "x", f"x{i}.dq"), weight]
        nodes.append(helper.make_node("MatMul", inputs, [f"x{i + 1}"], name=f"matmul_{i}"))
    steps = np.random.default_rng(1).uniform(1e-4, 3e-4, side).astype(np.float32)
    grids = {
        "x_scale": np.float32(0.05),
        "x_zero": np.uint8(128),
        "w_scale": steps,
        "w_zero": np.zeros(side, np.int8),
    }
    small = [numpy_helper.from_array(value, name) for name, value in grids.items()]
    kind = TensorProto.FLOAT if floats else TensorProto.INT8
    with _stored(nodes, names, kind, side, small) as path:
        yield path


@contextmanager
def _stored(
    nodes: list[NodeProto], names: list[str], kind: int, side: int, small: list[TensorProto]
) -> Iterator[Path]:
    """A model from x0 to the last x, its square weights in a data file.

    The data file is written piece by piece, so that making it needs no memory.
    """
    values = np.random.default_rng(0).normal(0.0, 0.01, 1 << 18)
    floats = kind == TensorProto.FLOAT
    codes = np.clip(values * 4000, -127, 127).astype(np.int8)
    piece = values.astype(np.float32) if floats else codes
    length = piece.itemsize * side * side
    initializers = list(small)
    with tempfile.TemporaryDirectory(prefix="onnxq-bench-") as folder:
        path = Path(folder) / "large.onnx"
        with (path.parent / "large.data").open("wb") as file:
            for _ in range(len(names) * length // piece.nbytes):
                file.write(piece.tobytes())
        for i, name in enumerate(names):
            stored = TensorProto(name=name, data_type=kind, dims=[side] * 2)
            stored.data_location = TensorProto.EXTERNAL
            where = {"location": "large.data", "offset": i * length, "length": length}
            for key, value in where.items():
                stored.external_data.add(key=key, value=str(value))
            initializers.append(stored)
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, side])
            for name in ("x0", f"x{len(names)}")
        ]
        graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], initializers)
        path.write_bytes(_model(graph).SerializeToString())
        yield path


def _model(graph: object) -> ModelProto:
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
