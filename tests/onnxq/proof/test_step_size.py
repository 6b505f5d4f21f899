"""Where tensors get their quantization step from."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxq.proof.step_size import Steps, StepSize
from onnxq.running.sessions import open_model
from tests.models import zoo

HEADER = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "onnxq": 1]>'


def steps(body: str, constants: str = "", x: str = "float[2, 4]") -> Steps:
    constants = f"float s = {{0.5}}, float t = {{0.25}}, uint8 z = {{3}}, {constants}".rstrip(", ")
    text = f"{HEADER} g ({x} x) => (float y) <{constants}> {{ q = QuantizeLinear(x, s, z) {body} }}"
    return Steps(open_model(parser.parse_model(text)))


@pytest.mark.parametrize(
    "body",
    [
        "y = DequantizeLinear(q, s, z)",
        "y = DequantizeLinear(q, s)",
        "y = com.microsoft.DequantizeLinear(q, s, z)",
        "y = onnxq.FakeQuantize<quant_min = 0, quant_max = 255>(x, s, z)",
        "i = Identity(s)  y = DequantizeLinear(q, i, z)",
        "c = Constant<value_float = 0.5>()  y = DequantizeLinear(q, c, z)",
        "c = Constant<value = float[1] {0.5}>()  y = DequantizeLinear(q, c, z)",
        "c = Cast<to = 11>(s)  i = Identity(c)  f = Cast<to = 1>(i)  y = DequantizeLinear(q, f, z)",
        "d = DequantizeLinear(q, s, z)  y = Flatten(d)",
        "d = DequantizeLinear(q, s, z)  a = Relu(d)  b = Transpose(a)  y = MaxPool(b)",
        "d = DequantizeLinear(q, s, z)  e = DequantizeLinear(q, s)  y = Concat<axis = 0>(d, e, d)",
        'd = DequantizeLinear(q, s, z)  y = Resize<mode = "nearest">(d)',
        "d = DequantizeLinear(q, s, z)  y, other = Split(d)",
    ],
)
def test_a_step_is_found(body: str) -> None:
    step = steps(body).of("y")
    assert step is not None
    assert step.scale.shape == ()
    assert step.largest == 0.5


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu(x)",
        "d = DequantizeLinear(q, s, z)  y = Add(d, d)",
        "d = DequantizeLinear(q, s, z)  e = DequantizeLinear(q, t)  y = Concat<axis = 0>(d, e)",
        "d = DequantizeLinear(q, s, z)  y = Concat<axis = 0>(d, x)",
        'd = DequantizeLinear(q, s, z)  y = Resize<mode = "linear">(d)',
        "m = ReduceMax(x)  y = DequantizeLinear(q, m, z)",
        "y = DequantizeLinear(q, nothing)",
        "y = DequantizeLinear(q, bad)",
        "d = DequantizeLinear<axis = 1>(q, many)  y = Transpose(d)",
        "y = Relu(loop)  loop = Relu(y)",
    ],
)
def test_no_step_is_invented(body: str) -> None:
    found = steps(body, "float bad = {0}, float[4] many = {1, 2, 3, 4}, float[0] nothing = {}")
    assert found.of("y") is None
    assert found.of("no such tensor") is None


@pytest.mark.parametrize(
    "body",
    ["y = Relu(q)", "y = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, z)", "y = Clip(q, z)"],
)
def test_codes_have_step_one(body: str) -> None:
    step = steps(body).of("y")
    assert step is not None
    assert step.largest == 1


@pytest.mark.parametrize("axis", ["<axis = 1>", "<axis = -1>", ""])
def test_a_step_per_channel_follows_its_axis(axis: str) -> None:
    found = steps(
        f"d = DequantizeLinear{axis}(q, many)  y = Identity(d)",
        "float[4] many = {1, 2, 3, 4}",
    )
    step = found.of("y")
    assert step is not None
    np.testing.assert_array_equal(step.along((2, 4)), [[1, 2, 3, 4]])
    assert step.largest == 4


def test_a_step_per_block_is_repeated() -> None:
    step = StepSize(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=1, block=3)
    np.testing.assert_array_equal(step.along((2, 5)), [[1, 1, 1, 2, 2], [3, 3, 3, 4, 4]])
    found = steps(
        "y = DequantizeLinear<axis = 1, block_size = 2>(q, many)",
        "float[2, 2] many = {1, 2, 3, 4}",
    ).of("y")
    assert found is not None
    np.testing.assert_array_equal(found.along((2, 4)), [[1, 1, 2, 2], [3, 3, 4, 4]])


def test_long_chains_do_not_exhaust_the_stack() -> None:
    proto = parser.parse_model(
        HEADER + "g (uint8[2] x) => (float y) <float s = {0.5}> { t0 = DequantizeLinear(x, s) }"
    )
    for i in range(5000):
        proto.graph.node.append(onnx.helper.make_node("Identity", [f"t{i}"], [f"t{i + 1}"]))
    step = Steps(open_model(proto)).of("t5000")
    assert step is not None
    assert step.largest == 0.5


def test_values_of_float8_have_no_step() -> None:
    proto = zoo.ZOO["qdq_float8"]()
    found = Steps(open_model(proto))
    ends = [n.output[0] for n in proto.graph.node if n.op_type.endswith("uantizeLinear")]
    assert len(ends) == 9
    assert all(found.of(name) is None for name in ends)


@pytest.mark.parametrize(
    ("body", "bits"),
    [
        ("y = DequantizeLinear(q, s, z)", 8),
        ("y = DequantizeLinear(q, s)", 8),
        ("v = QuantizeLinear(x, s, w)  y = DequantizeLinear(v, s, w)", 16),
        ("v = QuantizeLinear(x, s, w)  d = DequantizeLinear(v, s, w)  y = Flatten(d)", 16),
        ("y = onnxq.FakeQuantize<quant_min = 0, quant_max = 65535>(x, s, w)", 16),
        ("y = onnxq.FakeQuantize<quant_min = -2048, quant_max = 2047>(x, s, w)", 12),
    ],
)
def test_the_bits_of_codes_come_along(body: str, bits: int) -> None:
    step = steps(body, "uint16 w = {7}").of("y")
    assert step is not None
    assert step.bits == bits
