"""What `inspect` tells."""

from __future__ import annotations

import json

import onnx

from onnxq.graph import from_proto
from onnxq.workflows import demo
from onnxq.workflows.summary import summarize
from tests.models.build import parse, quantize
from tests.models.zoo import ZOO


def test_quantized_network() -> None:
    found = summarize(demo.quantize(demo.build()))
    assert found.dialects == ["canonical"]
    assert [layer.name for layer in found.layers][:2] == ["stem", "block.conv1"]
    assert all(layer.quantized and layer.output for layer in found.layers)
    assert found.inputs == [("image", "float32[batch, 3, 32, 32]")]
    assert json.loads(json.dumps(found.to_json()))["ops"]["Conv"] == 5


def test_qdq_is_read_into_the_same_table() -> None:
    found = summarize(from_proto(ZOO["qdq_uint8_stored_int32_bias"]()))
    assert found.dialects == ["QDQ"]
    assert {str(r.role) for r in found.table} == {"activation", "weight", "bias"}


def test_the_dialect_inside_a_function_is_named() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
        g (float[4] x) => (float[4] y) <float s = {0.1}, int8 z = {0}> { y = my.FQ(x, s, z) }
        <domain: "my", opset_import: ["" : 17]>
        FQ (a, s, z) => (b) { q = QuantizeLinear(a, s, z)  b = DequantizeLinear(q, s, z) }"""
    found = summarize(from_proto(onnx.parser.parse_model(text)))
    assert found.dialects == ["QDQ"]
    assert [row.tensor for row in found.table] == ["x"]
    assert found.ops == {"my::FQ": 1}, "operators are those of the file"


def test_float_model() -> None:
    found = summarize(from_proto(ZOO["residual"]()))
    assert (found.dialects, len(found.table)) == ([], 0)
    assert not any(layer.quantized for layer in found.layers)


def test_what_cannot_be_read_is_told() -> None:
    model = parse(
        """g (float[4] x, float s) => (float[4] y) <uint8 z = {7}> {
            q = QuantizeLinear(x, s, z)
            y = DequantizeLinear(q, s, z)
        }"""
    )
    assert any("run time" in skip.reason for skip in summarize(model).unread)


def test_inputs_quantized_in_front_of_what_moves_values_count() -> None:
    text = """g (float[1,2,4,4] x) => (float[1,1] y) <float[8,1] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
            f = Flatten(p)
            y = MatMul(f, w)
        }"""
    (layer,) = summarize(quantize(parse(text), "x")).layers
    assert (layer.input, layer.weight) == (True, False)
    (layer,) = summarize(parse(text)).layers
    assert not layer.input


def test_a_node_that_cannot_be_read_is_told_once() -> None:
    found = summarize(
        parse(
            """g (float[2,4] x) => (float[2,2] y) <int8[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
                codes, scale, zero = DynamicQuantizeLinear(x)
                sums = MatMulInteger(codes, w, zero)
                products = Cast <to = 1> (sums)
                y = Mul(products, scale)
            }"""
        )
    )
    told = [skip.where for skip in found.unread]
    assert sum("DynamicQuantizeLinear" in where for where in told) == 1
    assert len(told) == len(set(told))
