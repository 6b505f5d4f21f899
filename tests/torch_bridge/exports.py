"""Exporting a module and running what was written, for tests."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model, from_proto
from onnxq.quant.qparams import QParams
from onnxq.running import sessions
from torch_bridge.arithmetic.onnx_node import type_zero_points

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
    type_zero_points(proto)
    return from_proto(proto)


def run(model: Model, x: Any) -> np.ndarray:
    """The output in the reference session."""
    session = sessions.reference(model)
    (result,) = session.run({session.inputs[0].name: x.detach().numpy()}).values()
    return result


def quantizers(model: Model) -> list[QParams]:
    """The parameters of all FakeQuantize nodes."""
    return [params_of(node) for node in model.nodes(FAKE_QUANTIZE)]
