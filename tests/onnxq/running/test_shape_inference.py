from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper

from onnxq.errors import UnsupportedModelError
from onnxq.running.shape_inference import infer, static_bytes, weightless, without_made_up_names
from onnxq.storage.tensors import StoredValues


def test_small_constants_keep_their_values_and_large_ones_their_type() -> None:
    small = weightless(gs.Constant("s", np.arange(4)))
    assert onnx.numpy_helper.to_array(small).tolist() == [0, 1, 2, 3]
    large = weightless(gs.Constant("w", np.zeros((64, 64), np.float16)))
    assert (large.name, large.data_type, list(large.dims)) == ("w", TensorProto.FLOAT16, [64, 64])
    assert not large.raw_data


def test_external_values_are_left_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(8))
    tensor = TensorProto(name="w", data_type=TensorProto.INT64, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="data")
    bare = weightless(gs.Constant("w", StoredValues(tensor, tmp_path)))
    assert bare == TensorProto(name="w", data_type=TensorProto.INT64, dims=[1])


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        (np.dtype(np.float32), [2, 3], 24),
        (np.dtype(np.int64), [], 8),
        (np.dtype(np.int8), [0, 5], 0),
        (np.dtype(np.int8), [1 << 20, 1 << 20, 4], 1 << 42),
        (np.dtype(np.int8), ["n"], None),
        (np.dtype(np.int8), [None], None),
        (np.dtype(np.int8), None, None),
        (None, [2], None),
    ],
)
def test_static_bytes(dtype: np.dtype | None, shape: list | None, size: int | None) -> None:
    assert static_bytes(dtype, shape) == size


def test_names_of_the_model_stay_and_made_up_ones_go() -> None:
    info = helper.make_tensor_value_info("t", TensorProto.FLOAT, ["batch", "unk__0", 3])
    dims = without_made_up_names(info).type.tensor_type.shape.dim
    assert [d.WhichOneof("value") for d in dims] == ["dim_param", None, "dim_value"]
    assert info.type.tensor_type.shape.dim[1].dim_param == "unk__0"


def test_a_failure_is_one_error_of_our_own() -> None:
    nameless = onnx.ModelProto(graph=onnx.GraphProto(node=[onnx.NodeProto(op_type="Relu")]))
    with pytest.raises(UnsupportedModelError, match="cannot infer shapes"):
        infer(nameless)


@pytest.mark.parametrize(
    "body",
    [
        "a = Relu(x) b = Add(a, a) y = Abs(b)",
        "c = Unsqueeze(x, first) a = Reshape(c, all) b = Cast<to = 7>(a) y = Abs(b)",
        "y = If(flag) <then_branch = t () => (m) { a = Relu(x) b = Add(a, a) m = Abs(b) },"
        " else_branch = e () => (m) { m = Abs(x) }>",
    ],
)
def test_a_long_vector_is_no_shape_to_compute(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of its 2**40 entries onnx would make an unknown dimension, out of memory."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float[{1 << 40}] x, bool flag) => (float y)
        <int64[1] all = {{-1}}, int64[1] first = {{0}}> {{ {body} }}"""
    )
    given = onnx.shape_inference.infer_shapes

    def careful(proto: onnx.ModelProto, data_prop: bool = False) -> onnx.ModelProto:
        assert not data_prop, "takes all memory"
        return given(proto)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", careful)
    graph = infer(proto).graph
    bodies = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    infos = [info for each in (graph, *bodies) for info in each.value_info if info.name in "ab"]
    assert [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in infos] == [[1 << 40]] * 2


def test_shapes_that_are_computed_are_followed() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2,3,4] x) => (float[M,N] y)
        <int64 zero = {0}, int64[1] last = {-1}, int64[1] front = {0}> {
            s = Shape(x) n = Gather(s, zero) m = Unsqueeze(n, front)
            t = Concat<axis = 0>(m, last) a = Reshape(x, t) y = Abs(a)
        }"""
    )
    found = {info.name: info.type.tensor_type for info in infer(proto).graph.value_info}
    assert [d.dim_value for d in found["a"].shape.dim] == [2, 12]
