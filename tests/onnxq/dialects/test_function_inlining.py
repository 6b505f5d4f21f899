"""Functions that quantize are put in place of their calls; others stay functions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.dialects.function_inlining import functions_inlined, left_in, quantizing_functions
from onnxq.graph import Model, from_proto
from onnxq.reading import canonical
from tests.models.build import parse, quantize, run

QUANTIZING = """
<domain: "my", opset_import: ["" : {opset}]>
FQ (a) => (b) {{
    s = Constant <value = float {{0.02}}> ()
    z = Constant <value = int8 {{3}}> ()
    q = QuantizeLinear(a, s, z)
    b = DequantizeLinear(q, s, z)
}}"""
OUTER = '<domain: "my", opset_import: ["" : 17, "my" : 1]> Outer (a) => (b) { b = my.FQ(a) }'
DOUBLED = '<domain: "my", opset_import: ["" : 17]> Doubled (a) => (b) { b = Add(a, a) }'


def model_of(call: str, *functions: str, opset: int = 17) -> Model:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
    g (float[2,4] x) => (float[2,4] y) {{ d = {call}(x)
    y = my.Doubled(d) }}"""
    text += "\n".join((DOUBLED, QUANTIZING.format(opset=opset), *functions))
    return from_proto(onnx.parser.parse_model(text))


@pytest.mark.parametrize("call", ["my.FQ", "my.Outer"])
def test_a_function_that_quantizes_is_read(call: str) -> None:
    model = model_of(call, OUTER)
    read, _ = canonical(model)
    assert len(read.nodes(FAKE_QUANTIZE)) == 1
    assert [f.name for f in read.functions] == ["Doubled"]
    assert any("were inlined" in note and "my::FQ" in note for note in read.upgrades)
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(read, x)[0], run(model, x)[0])
    assert onnxq.convert(model, "onnxruntime").proven


def test_models_without_such_functions_are_not_copied() -> None:
    model = quantize(parse("g (float[4] x) => (float[4] y) { y = Neg(x) }"), "x")
    assert functions_inlined(model) is model


def test_a_function_of_another_opset_is_left_and_told() -> None:
    model = model_of("my.FQ", opset=13)
    assert functions_inlined(model) is model
    assert [f.name for f in quantizing_functions(model)] == ["FQ"]
    assert list(left_in(model)) == ["function 'my::FQ'"]
    done = onnxq.convert(quantize(model, "x"), "onnxruntime", verify=False)
    assert any("left as it is: function 'my::FQ'" in note for note in done.notes)
