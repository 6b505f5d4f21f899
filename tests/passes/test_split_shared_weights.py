from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto

import onnxq.graph
from onnxq.graph import Model, from_proto
from onnxq.pipeline import Pipeline
from onnxq.storage.function_form import all_nodes
from passes.lower_constants import LowerConstants
from passes.read_qdq import ReadQdq
from passes.split_shared_weights import SplitSharedWeights
from tests.checks.applied import Applied, apply_checked
from tests.models import zoo
from tests.models.zoo_build import Build

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def weights(done: Applied) -> list[list[str]]:
    """Names of weight and bias of each layer, in order."""
    return [[t.name for t in n.inputs[1:3]] for n in done.model.nodes(*LAYERS)]


def readers(proto: onnx.ModelProto) -> Counter[str]:
    return Counter(name for node in all_nodes(proto.graph.node) for name in node.input)


def test_each_layer_gets_its_own_weight_and_bias_and_the_first_keeps_the_name() -> None:
    b = Build()
    w, c = b.init(b.random(4, 4), "w"), b.init(b.random(4), "c")
    x = b.input("x", [2, 4])
    for _ in range(3):
        x = b.op("Gemm", x, w, c)
    done = apply_checked(b.model(x), SplitSharedWeights())
    assert weights(done) == [["w", "c"], ["w_1", "c_1"], ["w_2", "c_2"]]
    assert len(done.trace.rewrites) == 4


def test_no_bytes_are_copied_in_memory() -> None:
    b = Build()
    w = b.init(b.random(4, 4), "w")
    proto = b.model(b.op("MatMul", b.op("MatMul", b.input("x", [2, 4]), w), w))
    done = apply_checked(proto, SplitSharedWeights())
    first, second = (n.inputs[1] for n in done.model.nodes("MatMul"))
    assert first is not second
    assert first._values is second._values


def test_a_weight_that_is_read_elsewhere_too_is_left_to_the_others() -> None:
    """Read as data by Mul and as the left operand of MatMul: neither is a weight."""
    b = Build()
    w, x = b.init(b.random(4, 4), "w"), b.input("x", [4, 4])
    y = b.op("Mul", b.op("MatMul", b.op("MatMul", w, x), w), w)
    done = apply_checked(b.model(y), SplitSharedWeights())
    assert [[t.name for t in n.inputs] for n in done.model.nodes("MatMul")] == [
        ["w", "x"],
        [done.model.nodes("MatMul")[0].outputs[0].name, "w_1"],
    ]
    assert len(done.trace.rewrites) == 1


def test_what_stands_between_is_copied_whoever_wrote_it() -> None:
    head = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    proto = onnx.parser.parse_model(
        f"""{head} g (float[2,2] x) => (float[2,2] y)
        <int8[2,2] w = {{1, -2, 3, 4}}, float s = {{0.5}}, int8 z = {{1}}> {{
            d = com.microsoft.DequantizeLinear(w, s, z)
            f = Flatten(d)
            a = MatMul(x, f)
            y = MatMul(a, f)
        }}"""
    )
    done = apply_checked(proto, SplitSharedWeights())
    assert len(done.trace.rewrites) == 1
    assert Counter(n.op for n in done.model.nodes()) == {
        "DequantizeLinear": 2, "Flatten": 2, "MatMul": 2,
    }  # fmt: skip


def test_a_weight_that_is_a_graph_output_stays_one() -> None:
    b = Build()
    w = b.init(b.random(4, 4), "w")
    b.typed_output(w, [4, 4])
    done = apply_checked(b.model(b.op("MatMul", b.input("x", [2, 4]), w)), SplitSharedWeights())
    assert weights(done) == [["w_1"]]


def test_one_layer_with_one_constant_twice() -> None:
    b = Build()
    w = b.init(b.random(1, 1), "w")
    done = apply_checked(b.model(b.op("Gemm", b.input("x", [2, 1]), w, w)), SplitSharedWeights())
    assert weights(done) == [["w", "w_1"]]


def test_unshared_weights_are_left_alone() -> None:
    done = apply_checked(zoo.ZOO["conv_bn_chain"](), SplitSharedWeights())
    assert done.trace.rewrites == []
    assert done.reasons() == []


def test_a_weight_the_caller_may_replace_is_left_with_a_reason() -> None:
    b = Build()
    w = b.init(b.random(4, 4), "w")
    b.input("w", [4, 4])
    done = apply_checked(
        b.model(b.op("MatMul", b.op("MatMul", b.input("x", [2, 4]), w), w)), SplitSharedWeights()
    )
    assert weights(done) == [["w"], ["w"]]
    assert done.reasons() == ["'w' may be replaced by the caller"]


@pytest.mark.parametrize("op", ["Identity", "Transpose", "Cast"])
def test_what_stands_before_the_weight_is_copied_along(op: str) -> None:
    b = Build()
    values = b.random(4, 4)
    w = b.init(values.astype(np.float16) if op == "Cast" else values, "w")
    behind = b.op(op, w, **({"to": TensorProto.FLOAT} if op == "Cast" else {}))
    proto = b.model(b.op("MatMul", b.op("MatMul", b.input("x", [2, 4]), behind), behind))
    done = apply_checked(proto, SplitSharedWeights())
    assert sorted(done.ops()) == sorted([op, op, "MatMul", "MatMul"])
    assert {n.inputs[0].name for n in done.model.nodes(op)} == {"w", "w_1"}


def test_a_constant_node_is_a_constant() -> None:
    b = Build()
    w = b.constant(b.random(4, 4), out="w")
    proto = b.model(b.op("MatMul", b.op("MatMul", b.input("x", [2, 4]), w), w))
    done = apply_checked(proto, SplitSharedWeights())
    assert weights(done) == [["w"], ["w_1"]]


def canonical(proto: onnx.ModelProto) -> Model:
    return Pipeline(LowerConstants(), ReadQdq()).run(from_proto(proto)).model


def test_one_weight_with_four_scales_becomes_four_weights() -> None:
    for model in (
        from_proto(zoo.ZOO["qdq_shared_weight_four_scales"]()),
        canonical(zoo.ZOO["qdq_shared_weight_four_scales"]()),
    ):
        done = apply_checked(model, SplitSharedWeights())
        quantizers = done.model.nodes("QuantizeLinear", "onnxq::FakeQuantize")
        roots = [n.inputs[0] for n in quantizers if isinstance(n.inputs[0], gs.Constant)]
        assert len({t.name for t in roots}) == 4
        assert all(len(t.outputs) == 1 for t in roots)
        assert len(done.trace.rewrites) == 3


@pytest.mark.parametrize("form", ["trained", "stored", "canonical"])
def test_a_quantized_weight_read_by_two_layers_is_quantized_twice(form: str) -> None:
    """Each copy has its own codes or weight, scale and zero point."""
    b = Build()
    x = b.input("x", [1, 3, 5, 5])
    value = b.weight_values(3, 3, 1, 1)
    scale = np.abs(value).max(axis=(1, 2, 3)) / 127
    if form == "stored":
        w = b.stored(value, scale, axis=0)
    else:
        w = b.qdq(b.init(value, "w"), scale, axis=0)
    proto = b.model(b.op("Conv", b.op("Conv", x, w), w))
    done = apply_checked(canonical(proto) if form == "canonical" else proto, SplitSharedWeights())
    last = [n.inputs[1].inputs[0] for n in done.model.nodes("Conv")]
    assert last[0] is not last[1]
    assert last[0].op == last[1].op
    for index in range(3):
        assert last[0].inputs[index] is not last[1].inputs[index]
    for layer in last:
        quantize = layer.inputs[0].inputs
        if quantize:  # Q and DQ of one pair share their scale and zero point, as before
            assert quantize[0].inputs[1] is layer.inputs[1]
            assert quantize[0].inputs[2] is layer.inputs[2]
    assert len(done.trace.rewrites) == 1


@pytest.mark.parametrize(("name", "splits"), [("if_outer_weights", 2), ("loop_outer_weight", 1)])
def test_a_weight_read_in_a_body_and_outside_is_split(name: str, splits: int) -> None:
    done = apply_checked(zoo.ZOO[name](), SplitSharedWeights())
    assert len(done.trace.rewrites) == splits
    for node in done.model.nodes(*LAYERS):
        assert len(node.inputs[1].outputs) == 1


def test_a_quantizer_outside_with_readers_in_both_bodies() -> None:
    b = Build()
    flag, x = b.input("flag", [], TensorProto.BOOL), b.input("x", [2, 4])
    w = b.qdq(b.init(b.random(4, 4), "w"), 0.01)
    then, other = b.body(), b.body()
    then.typed_output(then.op("MatMul", x, w), [2, 4])
    other.typed_output(other.op("Gemm", x, w), [2, 4])
    bodies = {"then_branch": then.graph("then"), "else_branch": other.graph("else")}
    proto = b.model(b.op("If", flag, **bodies))
    for model in (from_proto(proto), canonical(proto)):
        done = apply_checked(model, SplitSharedWeights())
        assert len(done.trace.rewrites) == 1
        assert len({id(n.inputs[1]) for n in done.model.nodes("MatMul", "Gemm")}) == 2


def test_copies_stand_where_they_see_what_they_read() -> None:
    """The shape that Reshape reads is a tensor of the body."""
    b = Build()
    flag, x = b.input("flag", [], TensorProto.BOOL), b.input("x", [2, 4])
    w = b.init(b.random(16), "w")
    then, other = b.body(), b.body()
    weight = then.op("Reshape", w, then.op("Constant", value_ints=[4, 4]))
    then.typed_output(then.op("MatMul", then.op("MatMul", x, weight), weight), [2, 4])
    other.typed_output(other.op("Relu", x), [2, 4])
    bodies = {"then_branch": then.graph("then"), "else_branch": other.graph("else")}
    done = apply_checked(b.model(b.op("If", flag, **bodies)), SplitSharedWeights())
    assert done.ops().count("Reshape") == 2


def test_every_weight_of_the_repeated_gemm_has_one_reader() -> None:
    done = apply_checked(zoo.ZOO["repeated_gemm"](), SplitSharedWeights())
    count = readers(done.proto)
    assert all(count[name] == 1 for names in weights(done) for name in names)


def test_external_weights_stay_on_disk(tmp_path: Path) -> None:
    b = Build()
    w = b.init(b.random(64, 64), "w")
    path = tmp_path / "m.onnx"
    proto = b.model(b.op("MatMul", b.op("MatMul", b.input("x", [2, 64]), w), w))
    onnxq.graph.save(from_proto(proto), path, external_data=True)
    done = apply_checked(onnxq.graph.load(path), SplitSharedWeights())
    values = [n.inputs[1]._values for n in done.model.nodes("MatMul")]
    assert values[0] is values[1]
    assert values[0].external is not None
