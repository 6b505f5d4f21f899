"""What onnxruntime quantizes to the wrong end is known beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.models import _Source
from tests.fuzz.overflowing_codes import has_overflowing_codes


def quantized(kind: int, scale: Any, **attributes: int) -> bytes:
    """A weight with an entry of 2**32 in its last column, quantized in the model."""
    steps = np.array(scale, np.float32)
    given = {
        "w": numpy_helper.from_array(np.array([[1, 2, 3], [4, 5, 2.0**32]], np.float32), "w"),
        "s": numpy_helper.from_array(steps, "s"),
        "z": helper.make_tensor("z", kind, steps.shape, [1] * steps.size),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], **attributes),
        helper.make_node("Add", ["x", "d"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], list(given.values()))
    opset = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, ir_version=10, opset_imports=opset).SerializeToString()


@pytest.mark.parametrize(
    ("content", "overflows"),
    [
        (quantized(TensorProto.UINT4, [1.0, 1.0, 1.0], axis=1), True),
        (quantized(TensorProto.INT4, [1.0, 1.0, 1.0], axis=-1), True),
        (quantized(TensorProto.UINT8, [[1.0, 1.0, 1.0]], axis=0, block_size=2), True),
        (quantized(TensorProto.UINT4, [1e-5, 1e-5, 4.0], axis=1), False),
        (quantized(TensorProto.UINT8, [[1e-5, 1e-5, 4.0]], axis=0, block_size=2), False),
        (quantized(TensorProto.UINT8, [1.0, 1.0, 1.0], axis=1), False),
        (quantized(TensorProto.UINT4, 1.0), False),
    ],
)
def test_only_files_that_onnxruntime_gets_wrong_are_no_reference(
    content: bytes, overflows: bool, tmp_path: Path
) -> None:
    assert has_overflowing_codes(onnx.load_from_string(content)) is overflows
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert _Source(path).runs is not overflows
