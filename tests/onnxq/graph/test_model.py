"""Models can be edited, copied and swept without losing or mixing up anything.

The tests named row_NN are the known faults of onnx-graphsurgeon 0.6.1, one each.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import (
    ModelProto,
    TensorProto,
    helper,
    numpy_helper,
)

from onnxq.edit import constant, new_node, replace, set_input, variable
from onnxq.errors import InvalidModelError
from onnxq.graph import from_proto, new_model
from onnxq.quant.qparam_table import QParamTable
from tests.checks.plain_run import run_plain
from tests.checks.same_model import assert_same, is_sorted
from tests.checks.work import assert_linear
from tests.models.build import parse
from tests.models.protos import (
    add_props,
    chain,
    documented,
    info,
    kept,
    make,
    node_of,
    one,
    outer_uses,
    text,
    twins,
    with_overloads,
)

# -- rows 11 to 15: editing -------------------------------------------------------------------


def test_row_11_reversed_chain_of_thousands_is_sorted() -> None:
    length = 3000
    model = from_proto(make(chain(length)[::-1]))
    proto = model.to_proto()
    assert is_sorted(proto.graph)
    assert [n.output[0] for n in proto.graph.node] == [n.output[0] for n in chain(length)]
    assert run_plain(proto, {"x": np.float32([1, 2])})[0].tolist() == [1, 2]


def test_row_11_sorting_leaves_a_sorted_graph_alone() -> None:
    nodes = chain(100)
    assert [n.output[0] for n in from_proto(make(nodes)).to_proto().graph.node] == [
        n.output[0] for n in nodes
    ]


def test_row_11_shuffled_graph_is_sorted_in_linear_time() -> None:
    def prepare(length: int) -> Callable[[], object]:
        nodes = chain(length)
        random.Random(0).shuffle(nodes)
        return from_proto(make(nodes)).check

    assert_linear(prepare, 250)


def test_row_14_inputs_are_set_by_number_also_behind_the_end() -> None:
    model = from_proto(text("g (float[2] x, float lo, float hi) => (float[2] y) { y = Clip(x) }"))
    clip = node_of(model, "Clip")
    set_input(clip, 2, model.graph.inputs[2])
    assert list(model.to_proto().graph.node[0].input) == ["x", "", "hi"]
    set_input(clip, 1, model.graph.inputs[1])
    assert list(model.to_proto().graph.node[0].input) == ["x", "lo", "hi"]


def test_row_15_tensors_are_told_apart_by_identity() -> None:
    model = from_proto(twins())
    with pytest.raises(TypeError, match="unhashable"):
        hash(model.nodes("Relu")[0])
    assert model.is_output(model.graph.outputs[0])
    impostor = gs.Variable(model.graph.outputs[0].name)
    assert impostor == model.graph.outputs[0]  # by name
    assert not model.is_output(impostor)


def test_row_16_export_leaves_source_and_model_alone() -> None:
    proto = documented()
    before = proto.SerializeToString(deterministic=True)
    model = from_proto(proto)
    new_node(
        model,
        "com.y::Op",
        [model.graph.inputs[0]],
        [variable(model, "v", like=None)],
        name="n",
    )
    constant(model, "w", np.float32(1))
    first = model.to_proto().SerializeToString(deterministic=True)
    assert model.to_proto().SerializeToString(deterministic=True) == first
    assert proto.SerializeToString(deterministic=True) == before
    assert model.opsets == {"": 17, "com.x": 1}


def test_row_17_clone_equals_the_original() -> None:
    for proto in (documented(), with_overloads(), outer_uses()):
        model = from_proto(proto)
        assert_same(model.to_proto(), model.clone().to_proto())


def test_row_17_clone_is_independent() -> None:
    proto = documented()
    proto.graph.node.append(
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float32([1])))
    )
    before = ModelProto()
    before.CopyFrom(proto)
    model = from_proto(proto)
    twin = model.clone()
    add_props(twin.header, ("new", "entry"))
    twin.graph.record.header.quantization_annotation.add(tensor_name="x")
    twin.graph.inputs[0].shape[0] = 5
    twin.nodes("Constant")[0].attrs["value"].values = np.float32([2])
    mul = node_of(twin, "Mul")
    set_input(mul, 1, constant(twin, "w", np.float32([3, 4])))
    mul.attrs["new"] = 1
    replace(node_of(twin, "Neg"), mul.outputs[0], twin)
    twin.graph.outputs[0].name = "renamed"
    twin.opsets["com.z"] = 1
    twin.functions.append(onnx.FunctionProto(name="f"))
    twin.sweep()
    assert_same(before, model.to_proto())
    # and the other way round
    again = twin.to_proto().SerializeToString(deterministic=True)
    model.graph.outputs[0].name = "also renamed"
    node_of(model, "Mul").attrs["x"] = 1
    assert twin.to_proto().SerializeToString(deterministic=True) == again


def test_row_18_two_tensors_of_one_name_are_refused() -> None:
    model = one()
    neg = node_of(model, "Neg")
    replacement = gs.Variable("t")  # as graphsurgeon lets one do
    new_node(model, "Abs", [model.graph.inputs[0]], [replacement], name="abs")
    set_input(neg, 0, replacement)
    with pytest.raises(InvalidModelError, match="'t' has two producers"):
        model.check()


# -- names ------------------------------------------------------------------------------------


def test_fresh_name_avoids_every_name() -> None:
    proto = outer_uses()
    proto.graph.value_info.append(info("nobody"))
    proto.graph.quantization_annotation.add(tensor_name="annotated")
    model = from_proto(proto)
    for taken in ("c", "x", "y", "w", "t", "a", "b", "k", "s", "nobody", "annotated"):
        assert model.fresh_name(taken) == f"{taken}_1"
        assert model.fresh_name(taken) == f"{taken}_2"
    assert model.fresh_name("free") == "free"
    assert model.fresh_name("free") == "free_1"
    assert model.fresh_name("") not in ("", "c")


def test_fresh_name_does_not_trip_over_numbered_names() -> None:
    model = from_proto(
        text("g (float[2] b) => (float[2] b_1) { b0 = Neg(b)  b_2 = Neg(b0)  b_1 = Neg(b_2) }")
    )
    assert [model.fresh_name("b") for _ in range(2)] == ["b_3", "b_4"]
    twin = model.clone()
    assert twin.fresh_name("b") == model.fresh_name("b") == "b_5"


def test_fresh_name_is_linear() -> None:
    def prepare(count: int) -> Callable[[], object]:
        model = one()
        return lambda: len({model.fresh_name("n") for _ in range(count)})

    assert_linear(prepare, 200)
    model = one()
    assert len({model.fresh_name("n") for _ in range(500)}) == 500


# -- domains and versions ---------------------------------------------------------------------


def test_domain_of_a_new_node_is_imported() -> None:
    model = one()
    new_node(
        model, "com.y::Op", [model.graph.inputs[0]], [variable(model, "v", like=None)], name="n"
    )
    imports = {e.domain: e.version for e in model.to_proto().opset_import}
    assert imports == {"": 17, "com.x": 1, "com.y": 1}


def test_foreign_file_without_import_of_its_domain_is_left_so() -> None:
    kept(make([helper.make_node("Op", ["x"], ["y"], domain="org.example")]))


def test_default_domain_spelled_out() -> None:
    proto = make([helper.make_node("Neg", ["x"], ["y"], domain="ai.onnx")])
    proto.opset_import[0].domain = "ai.onnx"
    model = kept(proto)
    assert model.opset == 17
    assert [n.op for n in model.nodes("Neg")] == ["Neg"]


def test_versions_and_imports_are_kept() -> None:
    proto = make(chain(1), opset=9, ir_version=4)
    proto.opset_import.extend([helper.make_opsetid("com.microsoft", 1)])
    model = kept(proto)
    assert (model.opset, model.ir_version) == (9, 4)


def test_new_model_can_be_built_from_nothing() -> None:
    model = new_model("made")
    x = gs.Variable("x", np.float32, [2])
    y = gs.Variable("y", np.float32, [2])
    model.graph.inputs.append(x)
    model.graph.outputs.append(y)
    model.refresh()
    new_node(model, "Add", [x, constant(model, "one", np.float32(1))], [y], name="add")
    proto = model.to_proto()
    onnx.checker.check_model(proto, full_check=True)
    assert (proto.ir_version, proto.opset_import[0].version) == (10, 21)
    assert run_plain(proto, {"x": np.float32([1, 2])})[0].tolist() == [2, 3]


def test_changed_type_and_shape_are_written() -> None:
    model = one()
    tensor = model.graph.outputs[0]
    tensor.dtype, tensor.shape = np.dtype(np.float16), ["N", 3]
    written = model.to_proto().graph.output[0].type.tensor_type
    assert written.elem_type == TensorProto.FLOAT16
    assert [d.dim_param or d.dim_value for d in written.shape.dim] == ["N", 3]


def test_attribute_set_to_nan_is_written() -> None:
    model = from_proto(text("g (float[2] x) => (float[2] y) { y = Elu<alpha = 0.5>(x) }"))
    node_of(model, "Elu").attrs["alpha"] = float("nan")
    assert np.isnan(model.to_proto().graph.node[0].attribute[0].f)


# -- bodies -----------------------------------------------------------------------------------


def test_a_body_made_by_a_pass_is_seen_at_once() -> None:
    model = one()
    assert len(list(model.graphs())) == 1
    body = from_proto(outer_uses()).graph
    condition = constant(model, "c", np.array(True))
    branches = {"then_branch": body, "else_branch": body}
    made = variable(model, "made", like=None)
    new_node(model, "If", [condition], [made], name="if", attrs=branches)
    assert len(list(model.graphs())) > 1
    assert set(map(id, body.nodes)) <= set(map(id, model.nodes()))


def test_a_model_has_one_table() -> None:
    proto = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }").to_proto()
    for _ in range(2):
        proto.metadata_props.add(key="onnxq.qparams", value=QParamTable().dumps())
    with pytest.raises(InvalidModelError, match="2 quantization tables"):
        from_proto(proto)
