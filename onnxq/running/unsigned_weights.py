"""int8 weights of a large model as uint8, in a file: q + 128 and z + 128 are the same values.

onnxruntime does the same in sessions that avoid saturating kernels (`session.x64quantprecision`),
but in memory, and twice if the graph is written. Weights that it finds in uint8 it leaves alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from onnxq.quant.qparams import Array
from onnxq.running.temporary_weights import Spill
from onnxq.storage.external_data import ExternalData
from onnxq.storage.node_order import reads
from onnxq.storage.tensors import StoredValues

_MIDDLE = 128
_SIGN = np.uint8(1 << 7)
"""The bit that adding 128 turns."""


def with_unsigned_weights(proto: ModelProto, folder: Path | None, spill: Spill) -> ModelProto:
    """A copy whose int8 weights are uint8; all its weights are in the folder of `spill`.

    `folder` contains those of `proto`. It is returned as it is if it has no such weights.
    """
    found = _readers(proto, folder)
    if not found:
        return proto
    made = ModelProto()
    made.CopyFrom(proto)
    for tensor in made.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        chunks = ExternalData.of(tensor, folder).chunks()
        del tensor.external_data[:]
        if tensor.name in found:
            tensor.data_type = TensorProto.UINT8
            chunks = _turned(chunks)
        spill.append(tensor, chunks)
    for node in made.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in found:
            name = f"{node.output[0]}.zero_point.uint8"
            zeros = numpy_helper.from_array(found[node.input[0]], name)
            made.graph.initializer.append(zeros)
            node.input[:] = [*node.input[:2], name]
    return made


def _readers(proto: ModelProto, folder: Path | None) -> dict[str, Array]:
    """Weights that one DequantizeLinear and nothing else reads, with zero points in uint8."""
    stored = {t.name: t for t in proto.graph.initializer}
    found: dict[str, Array] = {}
    uses = Counter(name for node in proto.graph.node for name in reads(node))
    uses.update(output.name for output in proto.graph.output)
    uses.update(given.name for given in proto.graph.input)  # one that a caller may replace
    for node in proto.graph.node:
        if node.op_type != "DequantizeLinear" or node.domain not in ("", "ai.onnx"):
            continue
        weight, scale, *zeros = (stored.get(name) for name in node.input)
        if weight is None or scale is None or None in zeros or uses[weight.name] != 1:
            continue
        if weight.data_type != TensorProto.INT8 or weight.data_location != TensorProto.EXTERNAL:
            continue
        found[weight.name] = np.full(tuple(scale.dims), _MIDDLE, np.uint8)
        for given in zeros:
            assert given is not None
            found[weight.name] = StoredValues(given, folder).load().astype(np.uint8) ^ _SIGN
    return found


def _turned(chunks: Iterator[bytes]) -> Iterator[bytes]:
    return ((np.frombuffer(chunk, np.uint8) ^ _SIGN).tobytes() for chunk in chunks)


__all__ = ["with_unsigned_weights"]
