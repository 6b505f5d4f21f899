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
    """A chain of MatMuls whose weights lie in a data file, in a folder that goes at the end.

    The data file is written piece by piece, so that making it needs no memory.
    """
    with tempfile.TemporaryDirectory(prefix="onnxq-bench-") as folder:
        path = Path(folder) / "large.onnx"
        names = [f"weight_{i}" for i in range(weights)]
        length = 4 * LARGE_SIDE * LARGE_SIDE
        piece = np.random.default_rng(0).normal(0.0, 0.01, 1 << 18).astype(np.float32).tobytes()
        with (path.parent / "large.data").open("wb") as file:
            for _ in range(weights * length // len(piece)):
                file.write(piece)
        initializers = []
        for i, name in enumerate(names):
            stored = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[LARGE_SIDE] * 2)
            stored.data_location = TensorProto.EXTERNAL
            where = {"location": "large.data", "offset": i * length, "length": length}
            for key, value in where.items():
                stored.external_data.add(key=key, value=str(value))
            initializers.append(stored)
        nodes = [
            helper.make_node("MatMul", [f"x{i}", name], [f"x{i + 1}"], name=f"matmul_{i}")
            for i, name in enumerate(names)
        ]
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, LARGE_SIDE])
            for name in ("x0", f"x{weights}")
        ]
        graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], initializers)
        path.write_bytes(_model(graph).SerializeToString())
        yield path


def _model(graph: object) -> ModelProto:
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
