"""Windows larger than their input end the process in onnx and onnxruntime: they are refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxq.errors import UnsupportedModelError
from onnxq.running import sessions
from onnxq.running.shape_inference import infer

CONSTANTS = (
    "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] last = {3}, float s = {0.1}, uint8 z = {0},"
    "float[1,1,2,2] w = {1,1,1,1}, uint8[1,1,2,2] c = {1,1,1,1}>"
)
FLOATS = [
    "p = MaxPool<kernel_shape=[2,2], dilations=[1,WIDTH]>(x)",
    "p = AveragePool<kernel_shape=[2,WIDTH]>(x)",
    "p = Conv<dilations=[1,WIDTH]>(x, w)",
]
CODES = [
    "p = QLinearConv<dilations=[1,WIDTH]>(x, s, z, c, s, z, s, z)",
    "a = com.microsoft.QLinearAdd(x, s, z, x, s, z, s, z)"
    "p = com.microsoft.QLinearAveragePool<kernel_shape=[2,WIDTH]>(a, s, z, s, z)",
]


def sliced(node: str, kind: str, width: int) -> onnx.ModelProto:
    """A window over 8 columns, then a Slice."""
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19, "com.microsoft": 1]>'
        f"g ({kind}[1,1,8,8] x) => ({kind}[1,1,h,v] y) {CONSTANTS}"
        f"{{ {node.replace('WIDTH', str(width))} y = Slice(p, zero, one, last) }}"
    )


CASES = [(node, "float") for node in FLOATS] + [(node, "uint8") for node in CODES]


@pytest.mark.parametrize(("node", "kind"), CASES)
def test_a_window_with_room_runs(node: str, kind: str) -> None:
    proto = sliced(node, kind, 7)
    dtype = np.float32 if kind == "float" else np.uint8
    made = sessions.reference(proto).run({"x": np.ones((1, 1, 8, 8), dtype)})
    assert made["y"].shape[3] == 1
    infer(proto)


@pytest.mark.parametrize(("node", "kind"), CASES)
def test_a_window_without_room_is_refused(node: str, kind: str) -> None:
    proto = sliced(node, kind, 255)
    with pytest.raises(UnsupportedModelError, match=r"window of node 'p' .* is larger than"):
        sessions.reference(proto)


def test_an_open_dimension_written_as_a_number_below_zero() -> None:
    proto = sliced(FLOATS[2], "float", 1)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    made = sessions.reference(proto).run({"x": np.ones((1, 1, 8, 8), np.float32)})
    np.testing.assert_array_equal(made["y"], np.full((1, 1, 7, 1), 4))  # four ones a window


@pytest.mark.parametrize("node", FLOATS)
def test_shape_inference_refuses_it_too(node: str) -> None:
    with pytest.raises(UnsupportedModelError, match="larger than its input 'x'"):
        infer(sliced(node, "float", 255))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_convolution_of_a_vector_is_refused_when_it_is_fed(rank: int) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 19]> g (float[n] x) => (float[m] y)'
        "{ a = Abs(x) y = Conv<kernel_shape=[1,1]>(a, x) }"
    )
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    session = sessions.reference(proto)
    with pytest.raises(UnsupportedModelError, match=rf"node 'y' .* reads 'a' of rank {rank}"):
        session.run({"x": np.ones((2,) * rank, np.float32)})
    assert session.run({"x": np.ones((1, 1, 1, 1), np.float32)})["y"].shape == (1, 1, 1, 1)
