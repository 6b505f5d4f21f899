"""Functions are added when a model is written and taken out when it is read."""

from __future__ import annotations

import numpy as np
import onnx

from onnxq import fake_quantize_log
from onnxq.edit import insert
from onnxq.fake_quantize import function
from onnxq.graph import Model, from_proto
from onnxq.local_functions import fresh, take_functions, with_functions
from tests.build import bit_equal, parse, quantize, run, tensor


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


def test_a_function_that_other_functions_call_stays() -> None:
    model = both()
    proto = model.to_proto()
    caller = onnx.helper.make_function(
        "mine",
        "Twice",
        ["x", "s", "z"],
        ["y"],
        [
            onnx.helper.make_node(
                "FakeQuantize", ["x", "s", "z"], ["y"], domain="onnxq", quant_min=0, quant_max=3
            )
        ],
        [onnx.helper.make_opsetid("onnxq", 1), onnx.helper.make_opsetid("", 15)],
    )
    proto.functions.append(caller)
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
