from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.arithmetic.onnx_node import is_dynamo_export, is_export, type_zero_points  # noqa: E402


def test_nothing_is_exported_outside_of_exporters() -> None:
    assert not is_export()
    assert not is_dynamo_export()


def test_int32_zero_points_become_uint16_and_other_readers_keep_theirs() -> None:
    def quantizer(zero_point: str, name: str) -> object:
        attrs = {"quant_min": 0, "quant_max": 65535}
        return helper.make_node(
            "FakeQuantize", ["x", "s", zero_point], [name], "", "", "onnxq", **attrs
        )

    constants = {
        "s": np.float32(0.1),
        "z": np.int32(40_000),
        "shared": np.int32(7),
        "typed": np.int8(3),
    }
    nodes = [
        helper.make_node("Identity", ["z"], ["alias"]),
        quantizer("alias", "a"),
        quantizer("z", "b"),
        quantizer("shared", "c"),
        quantizer("typed", "d"),
        helper.make_node("Cast", ["shared"], ["e"], to=TensorProto.FLOAT),
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "abcde"]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    initializers = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], outputs, initializers))

    type_zero_points(model)
    values = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    quantizers = [n for n in model.graph.node if n.op_type == "FakeQuantize"]
    zero_points = [values[n.input[2]] for n in quantizers]
    assert [z.dtype for z in zero_points] == [np.uint16] * 3 + [np.int8]
    assert [z.item() for z in zero_points] == [40_000, 40_000, 7, 3]
    assert values["shared"].dtype == np.int32
    assert len(values) == len(set(values)) == 6  # s, z (still after Identity), both twins, ...
