"""Functions are added when a model is written and taken out when it is read."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxq.canonical import fake_quantize_log
from onnxq.canonical.fake_quantize import function
from onnxq.canonical.local_functions import FOREIGN, fresh, take_functions, with_functions
from onnxq.dialects.function_inlining import functions_inlined
from onnxq.edit import insert
from onnxq.errors import InvalidModelError, UnsupportedModelError
from onnxq.graph import Model, from_proto
from onnxq.reading import canonical
from tests.models.build import bit_equal, parse, quantize, run, tensor


def both() -> Model:
    """A linear and a logarithmic quantizer."""
    model = parse("g (float[4] x) => (float[4] y) { a = Relu(x)\n y = Neg(a) }", 13, 7)
    quantize(model, "x")
    model.refresh()
    insert(model, tensor(model, "a"), lambda x, y, g: fake_quantize_log.make(model, x, y, 2.0, g))
    return model


def names(model: Model | onnx.ModelProto) -> list[str]:
    return [f.name for f in model.functions]


def test_each_function_in_use_is_written_once_for_the_opset_of_the_file() -> None:
    model = both()
    proto = model.to_proto()
    assert sorted(names(proto)) == ["FakeQuantize", "FakeQuantizeLog"]
    versions = {e.version for f in proto.functions for e in f.opset_import if not e.domain}
    assert versions == {e.version for e in proto.opset_import if not e.domain}
    assert (names(model), model.opset) == ([], 13), "the model itself is not changed"
    again = from_proto(proto)
    assert names(again) == []
    assert "onnxq" not in again.opsets
    x = np.linspace(-2, 2, 4, dtype=np.float32)
    assert bit_equal(run(model, x), run(again, x))


def test_a_model_that_calls_none_is_returned_as_it_is() -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    assert with_functions(model) is model


def twice(opset: int) -> onnx.FunctionProto:
    """A function of the user's own that calls onnxq's."""
    return onnx.helper.make_function(
        "mine",
        "Twice",
        ["x", "s", "z"],
        ["y"],
        [
            onnx.helper.make_node(
                "FakeQuantize", ["x", "s", "z"], ["y"], domain="onnxq", quant_min=0, quant_max=3
            )
        ],
        [onnx.helper.make_opsetid("onnxq", 1), onnx.helper.make_opsetid("", opset)],
    )


def test_a_function_that_other_functions_call_stays() -> None:
    model = both()
    proto = model.to_proto()
    proto.functions.append(twice(15))
    read = from_proto(proto)
    take_functions(read)
    assert sorted(names(read)) == ["FakeQuantize", "Twice"]
    assert read.opsets["onnxq"] == 1


def test_bodies_are_made_anew_for_another_opset() -> None:
    made = fresh(function(17), 21)
    assert made is not None
    assert [e.version for e in made.opset_import] == [21]
    other = onnx.helper.make_function("mine", "FakeQuantize", ["x"], ["x"], [], [])
    assert fresh(other, 21) is None


# -- bodies of others --------------------------------------------------------------------------


def brought(edit: str, opset: int = 17) -> onnx.ModelProto:
    """A quantized model whose file brings an edited body for FakeQuantize."""
    model = parse("g (float[4] x) => (float[4] y) { y = Neg(x) }", opset)
    proto = quantize(model, "x").to_proto()
    (body,) = proto.functions
    edits[edit](body)
    return proto


def _negate(body: onnx.FunctionProto) -> None:
    body.node[-1].output[0] = "before"
    body.node.append(onnx.helper.make_node("Neg", ["before"], ["y"]))


def _other_default(body: onnx.FunctionProto) -> None:
    next(a for a in body.attribute_proto if a.name == "axis").i = 0


def _more_inputs(body: onnx.FunctionProto) -> None:
    body.input.append("unused")


def _renamed(body: onnx.FunctionProto) -> None:
    names = {name: f"v_{name}" for node in body.node for name in (*node.input, *node.output)}
    for node in body.node:
        node.input[:] = [names[n] for n in node.input]
        node.output[:] = [names[n] for n in node.output]
    body.input[:] = [names[n] for n in body.input]
    body.output[:] = [names[n] for n in body.output]
    body.doc_string = "renamed"


def _older(body: onnx.FunctionProto) -> None:
    version = body.opset_import[0].version
    body.CopyFrom(function(version, onnx.TensorProto.INT32))


edits = {
    "negate": _negate,
    "default": _other_default,
    "inputs": _more_inputs,
    "renamed": _renamed,
    "older": _older,
}


@pytest.mark.parametrize("opset", [15, 17, 21])
@pytest.mark.parametrize("edit", ["renamed", "older"])
def test_bodies_that_onnxq_wrote_are_taken_out_whatever_their_names(edit: str, opset: int) -> None:
    model = from_proto(brought(edit, opset))
    assert names(model) == []
    assert model.upgrades == []
    assert [n.domain for n in model.nodes("onnxq::FakeQuantize")] == ["onnxq"]


@pytest.mark.parametrize("edit", ["negate", "default", "inputs"])
def test_a_body_of_others_keeps_its_meaning_and_is_told(edit: str) -> None:
    proto = brought(edit)
    model = from_proto(proto)
    assert [(f.domain, f.name) for f in model.functions] == [(FOREIGN, "FakeQuantize")]
    assert model.nodes("onnxq::FakeQuantize") == []
    assert "not written by onnxq" in model.upgrades[0]
    x = np.linspace(-2, 2, 4, dtype=np.float32)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for made in (model, functions_inlined(model), from_proto(model.to_proto())):
        assert bit_equal(run(made, x), session.run(None, {"x": x}))


def test_quantization_in_a_body_of_others_is_read() -> None:
    body = onnx.parser.parse_function(
        """<domain: "onnxq", opset_import: ["" : 17]> Fake (a) => (b) {
            s = Constant <value = float {0.02}> ()
            z = Constant <value = int8 {3}> ()
            q = QuantizeLinear(a, s, z)
            b = DequantizeLinear(q, s, z)
        }"""
    )
    proto = quantize(parse("g (float[4] x) => (float[4] y) { y = Neg(x) }", 17), "x").to_proto()
    call = proto.graph.node.add(op_type="Fake", domain="onnxq")
    call.input.append(proto.graph.node[1].output[0])
    call.output.append("z")
    proto.graph.output.add().CopyFrom(proto.graph.output[0])
    proto.graph.output[1].name = "z"
    proto.functions.append(body)
    read, _ = canonical(from_proto(proto))
    assert len(read.nodes("onnxq::FakeQuantize")) == 2
    assert read.functions == []


def test_functions_that_call_a_body_of_others_still_call_it() -> None:
    proto = brought("negate")
    proto.functions.append(twice(17))
    (call,) = (n for n in proto.graph.node if n.domain == "onnxq")
    call.op_type, call.domain = "Twice", "mine"
    del call.attribute[:]
    proto.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    model = from_proto(proto)
    x = np.linspace(-2, 2, 4, dtype=np.float32)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for made in (model, functions_inlined(model)):
        assert bit_equal(run(made, x), session.run(None, {"x": x}))


def test_a_function_with_an_overload_is_not_ours() -> None:
    proto = brought("renamed")
    proto.functions[0].overload = "other"
    for node in proto.graph.node:
        if node.domain == "onnxq":
            node.overload = "other"
    model = from_proto(proto)
    assert [(f.domain, f.overload) for f in model.functions] == [(FOREIGN, "other")]


def test_a_call_without_its_function_is_ours_in_the_version_onnxq_knows() -> None:
    proto = brought("renamed")
    del proto.functions[:]
    assert len(from_proto(proto).nodes("onnxq::FakeQuantize")) == 1
    imported = next(e for e in proto.opset_import if e.domain == "onnxq")
    imported.version = 2
    with pytest.raises(UnsupportedModelError, match="version 2"):
        from_proto(proto)


@pytest.mark.parametrize("field", ["op_type", "overload"])
def test_a_call_of_nothing_is_refused(field: str) -> None:
    proto = brought("renamed")
    (call,) = (n for n in proto.graph.node if n.domain == "onnxq")
    setattr(call, field, "Unknown")
    with pytest.raises(UnsupportedModelError, match="neither in the file nor in onnxq"):
        from_proto(proto)


@pytest.mark.parametrize("edit", ["renamed", "negate"])
def test_a_function_stands_once(edit: str) -> None:
    proto = brought(edit)
    proto.functions.add().CopyFrom(function(17))
    with pytest.raises(InvalidModelError, match="'onnxq::FakeQuantize' is defined twice"):
        from_proto(proto)


def test_the_domain_of_others_bodies_is_a_free_one() -> None:
    proto = brought("negate")
    proto.functions.add().CopyFrom(proto.functions[0])
    proto.functions[1].domain = FOREIGN
    assert sorted(f.domain for f in from_proto(proto).functions) == [FOREIGN, f"{FOREIGN}2"]
