from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxq.graph
from onnxq.graph import from_proto
from onnxq.pipeline import Pipeline
from passes.infer_shapes import InferShapes
from passes.read_qdq import ReadQdq
from tests.checks.applied import apply_checked
from tests.models import zoo
from tests.models.build import parse
from tests.models.zoo_build import Build


def types(graph: onnx.GraphProto) -> dict[str, tuple[int, list[int | str]]]:
    found = {}
    for info in graph.value_info:
        kind = info.type.tensor_type
        dims: list[int | str] = [
            d.dim_value if d.HasField("dim_value") else d.dim_param for d in kind.shape.dim
        ]
        found[info.name] = (kind.elem_type, dims)
    return found


def test_types_and_symbols_run_through_the_graph() -> None:
    done = apply_checked(zoo.ZOO["dynamic_batch"](), InferShapes())
    found = types(done.proto.graph)
    made = {t for n in done.proto.graph.node for t in n.output}
    assert set(found) == made - {o.name for o in done.proto.graph.output}
    assert all(dims[0] == "N" for _, dims in found.values())
    assert len(done.trace.rewrites) == len(found)


def test_shapes_that_are_computed_are_followed() -> None:
    done = apply_checked(
        """g (float[2,3,4] x) => (float[A,B] y)
        <int64[1] minus = {-1}, int64 zero = {0}, int64[1] axes = {0}> {
          s = Shape(x) b = Gather(s, zero) u = Unsqueeze(b, axes) c = Concat<axis=0>(u, minus)
          r = Reshape(x, c) y = Relu(r) }""",
        InferShapes(),
    )
    assert types(done.proto.graph)["r"] == (TensorProto.FLOAT, [2, 12])


def test_bodies_get_types_too() -> None:
    done = apply_checked(zoo.ZOO["if_outer_weights"](), InferShapes())
    holder = next(n for n in done.proto.graph.node if n.op_type == "If")
    for attribute in holder.attribute:
        assert types(attribute.g)["inner"] == (TensorProto.FLOAT, [1, 3, 6, 6])


def test_existing_types_are_never_changed() -> None:
    """Neither refined nor corrected: what the file says stays."""
    proto = parse(
        "g (float[2,3] x) => (float[A,B] y) { a = Relu(x) b = Neg(a) y = Abs(b) }"
    ).to_proto()
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["p", "q"]))
    done = apply_checked(proto, InferShapes())
    found = types(done.proto.graph)
    assert found["a"][1] == ["p", "q"]
    assert "b" in found
    assert done.proto.graph.output[0] == proto.graph.output[0]


def test_a_shape_is_added_to_a_type_without_one() -> None:
    proto = parse("g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Neg(a) }").to_proto()
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, None))
    done = apply_checked(proto, InferShapes())
    assert types(done.proto.graph)["a"][1] == [2, 3]
    assert len(done.trace.rewrites) == 1


def test_sizes_known_only_at_run_time_get_no_made_up_name() -> None:
    done = apply_checked(
        "g (float[4] x) => (int64[A,B] y) { n = NonZero(x) y = Neg(n) }", InferShapes()
    )
    assert types(done.proto.graph)["n"][1] == [1, ""]


@pytest.mark.parametrize("name", ["qdq_residual", "qdq_int16_activations", "qdq_in_if"])
def test_types_run_through_fake_quantize(name: str) -> None:
    model = Pipeline(ReadQdq()).run(from_proto(zoo.ZOO[name]())).model
    opset = model.opset
    done = apply_checked(model, InferShapes())
    nodes = done.model.nodes("onnxq::FakeQuantize")
    assert nodes
    assert all(n.outputs[0].dtype == np.float32 for n in nodes)
    assert all(n.outputs[0].shape is not None for n in nodes)
    assert done.model.opset == opset


def test_fake_quantize_needs_no_newer_opset(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Pipeline(ReadQdq()).run(from_proto(zoo.ZOO["qdq_opset_10"]())).model

    def forbidden(*args: object) -> None:
        raise AssertionError("the opset was raised")

    monkeypatch.setattr("onnxq.opsets.opset_upgrade.raise_opset", forbidden)
    result = Pipeline(InferShapes()).run(model)
    assert all(n.outputs[0].dtype == np.float32 for n in result.model.nodes("Conv"))
    assert result.traces[0].skips == []


def test_unknown_operators_are_left_with_a_reason() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Thing", ["a"], ["b"], domain="acme", name="thing"),
            helper.make_node("Relu", ["b"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    model = from_proto(helper.make_model(graph, ir_version=8, opset_imports=opsets))
    trace = Pipeline(InferShapes()).run(model).traces[0]
    assert trace.rewrites == ["'a': float32[2]"]
    assert [(s.where, s.reason) for s in trace.skips] == [
        ("'thing' (Thing)", "the type of 'b' cannot be inferred")
    ]


def test_sequences_get_their_type() -> None:
    done = apply_checked(
        """g (float[2] x, float[2] z) => (float[M] y)
        { s = SequenceConstruct(x, z) y = ConcatFromSequence<axis=0>(s) }""",
        InferShapes(),
    )
    (info,) = done.proto.graph.value_info
    assert info.type.HasField("sequence_type")


def test_a_failing_inference_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    model = from_proto(zoo.ZOO["conv_bn_chain"]())

    def fail(*args: object, **options: object) -> None:
        raise onnx.shape_inference.InferenceError("something odd")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", fail)
    trace = Pipeline(InferShapes()).run(model).traces[0]
    assert trace.rewrites == []
    assert trace.notes == ["onnx cannot infer shapes: something odd"]


def test_a_model_that_contradicts_itself_does_not_stop_the_pass() -> None:
    proto = parse(
        "g (float[2,3] x, float[5,5] w) => (float y) { a = MatMul(x, w) y = Neg(a) }"
    ).to_proto()
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.INT8, [9]))
    trace = Pipeline(InferShapes()).run(from_proto(proto)).traces[0]
    assert trace.rewrites == []


def test_external_data_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    b = Build()
    x = b.op("MatMul", b.input("x", [2, 64]), b.init(b.random(64, 64), "w"))
    path = tmp_path / "m.onnx"
    onnxq.graph.save(from_proto(b.model(b.op("Relu", x))), path, external_data=True)
    model = onnxq.graph.load(path)

    def forbidden(*args: object) -> None:
        raise AssertionError("external data was read")

    monkeypatch.setattr("onnxq.storage.tensors.ExternalData.chunks", forbidden)
    monkeypatch.setattr("onnxq.storage.tensors.ExternalData.map", forbidden)
    trace = Pipeline(InferShapes()).run(model).traces[0]
    assert len(trace.rewrites) == 1


def test_untyped_outputs_get_their_type() -> None:
    proto = parse("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }").to_proto()
    proto.graph.output[0].ClearField("type")
    result = Pipeline(InferShapes()).run(from_proto(proto)).model.to_proto()
    assert result.graph.output[0] == helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
