"""Models with weights of their own choosing, inline or in data files, for tests of saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxq.edit import constant, set_input
from onnxq.graph import Model, from_proto, save
from onnxq.graph.constants import array

BIG = np.arange(1000, dtype=np.float32)
SMALL = np.float32([1, 2])


def model_proto(*initializers: TensorProto) -> ModelProto:
    weights = list(initializers) or [numpy_helper.from_array(BIG, "w")]
    nodes = [helper.make_node("Identity", [w.name], [f"{w.name}.y"]) for w in weights]
    outputs = [helper.make_tensor_value_info(f"{w.name}.y", w.data_type, w.dims) for w in weights]
    graph = helper.make_graph(nodes, "g", [], outputs, initializer=weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def external(tensor: TensorProto, **entries: object) -> TensorProto:
    """`tensor` without its bytes, with the given external data entries."""
    bare = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    bare.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        bare.external_data.add(key=key, value=str(value))
    return bare


def write(path: Path, proto: ModelProto) -> Path:
    path.write_bytes(proto.SerializeToString())
    return path


def stored_model(tmp_path: Path) -> Path:
    """A model whose weights 'a', 'b' lie in one data file."""
    weights = [numpy_helper.from_array(BIG + i, name) for i, name in enumerate("ab")]
    save(from_proto(model_proto(*weights)), tmp_path / "m.onnx", external_data=True)
    return tmp_path / "m.onnx"


def weight(model: Model, name: str) -> Any:
    return next(c for c in model.graph.record.constants if c.name == name)


def value(model: Model, name: str) -> np.ndarray:
    found = array(weight(model, name))
    assert found is not None
    return found


def listing(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def change(model: Model, name: str, new: np.ndarray) -> None:
    reader = weight(model, name).outputs[0]
    set_input(reader, 0, constant(model, name, new))
