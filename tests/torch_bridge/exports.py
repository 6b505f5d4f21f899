"""Exporting a module and running what was written, for tests."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, OP, params_of
from onnxq.graph import Model, from_proto
from onnxq.quant.qparams import QParams
from onnxq.running import sessions

torch = pytest.importorskip("torch", reason="training needs torch")


def export(module: Any, x: Any, folder: Path, *, dynamo: bool = False) -> Model:
    """The module as a model; any warning but those about the exporter itself is an error."""
    file = str(folder / "module.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in (
            "You are using the legacy TorchScript-based ONNX export",
            "The feature will be removed",
            r"`isinstance\(treespec, LeafSpec\)` is deprecated",
        ):
            warnings.filterwarnings("ignore", text)
        more = {"external_data": False, "verbose": False} if dynamo else {}
        torch.onnx.export(module.eval(), (x,), file, dynamo=dynamo, opset_version=20, **more)
    proto = onnx.load(file)
    _type_zero_points(proto)
    return from_proto(proto)


def _type_zero_points(proto: onnx.ModelProto) -> None:
    """Turn the int32 zero points that TorchScript leaves into uint16."""
    aliases = {n.output[0]: n.input[0] for n in proto.graph.node if n.op_type == "Identity"}
    names = {n.input[2] for n in proto.graph.node if n.op_type == OP}
    names |= {aliases[name] for name in names if name in aliases}
    for value in proto.graph.initializer:
        if value.name in names and value.data_type == TensorProto.INT32:
            typed = numpy_helper.to_array(value).astype(np.uint16)
            value.CopyFrom(numpy_helper.from_array(typed, value.name))


def run(model: Model, x: Any) -> np.ndarray:
    """The output in the reference session."""
    session = sessions.reference(model)
    (result,) = session.run({session.inputs[0].name: x.detach().numpy()}).values()
    return result


def quantizers(model: Model) -> list[QParams]:
    """The parameters of all FakeQuantize nodes."""
    return [params_of(node) for node in model.nodes(FAKE_QUANTIZE)]
