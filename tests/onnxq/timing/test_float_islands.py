"""Float operators beside codes, and what their conversions cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from onnxq.timing.float_islands import Islands, Kernel, float_islands
from onnxq.timing.kernel_kinds import Kind

_OPS: dict[Kind, str] = {
    "float": "Erf",
    "integer": "QLinearAdd",
    "moves": "Reshape",
    "other": "Shape",
}


def chain(*ops: str, cost: float = 1.0) -> Islands:
    """Operators one after the other: x -> t0 -> t1 ..."""
    kernels, at = [], "x"
    for number, op in enumerate(ops):
        kind = next((k for k, o in _OPS.items() if o == op), "conversion")
        kernels.append(Kernel(helper.make_node(op, [at], [f"t{number}"]), kind, cost))
        at = f"t{number}"
    return float_islands(kernels, ())


def test_an_operator_between_integer_ones() -> None:
    found = chain("QLinearAdd", "DequantizeLinear", "Erf", "QuantizeLinear", "Reshape")
    (erf,) = found.kernels
    assert (erf.conversions, erf.before, erf.after) == (2.0, ["QLinearAdd"], ["Reshape"])
    assert found.count == 1


def test_two_islands_and_one_of_two_operators() -> None:
    middle = ("DequantizeLinear", "Erf", "QuantizeLinear", "QLinearAdd")
    found = chain("QLinearAdd", *middle, "DequantizeLinear", "Erf", "Erf", "QuantizeLinear")
    assert found.count == 2
    assert [k.conversions for k in found.kernels] == [2.0, 1.0, 1.0]


def test_float_networks_have_no_islands() -> None:
    assert chain("Erf", "Erf", "Shape") == Islands((), 0)


def test_a_dequantized_weight_does_not_make_an_island() -> None:
    kernels = [
        Kernel(helper.make_node("DequantizeLinear", ["codes", "s"], ["w"]), "conversion", 5.0),
        Kernel(helper.make_node("MatMul", ["x", "w"], ["y"]), "float", 1.0),
    ]
    assert float_islands(kernels, ["codes", "s"]).count == 0
    assert float_islands(kernels, ["s"]).count == 1


def test_floats_of_integer_operators_touch_codes() -> None:
    assert chain("QLinearAdd", "Erf").kernels[0].before == ["QLinearAdd"]
    assert chain("Erf", "QLinearAdd").kernels[0].after == ["QLinearAdd"]


def test_fake_quantization_in_float_names_the_operators_around() -> None:
    pair = ("QuantizeLinear", "DequantizeLinear")
    found = chain("Erf", *pair, "Erf", *pair)
    assert {(*k.before, "->", *k.after) for k in found.kernels} == {
        ("->", "Erf"),
        ("Erf", "->", "the output"),
    }
    assert chain("DequantizeLinear", "Erf").kernels[0].before == ["the input"]


def test_the_most_expensive_comes_first() -> None:
    kernels = [
        Kernel(helper.make_node("DequantizeLinear", ["c", "s"], ["a"]), "conversion", 1.0),
        Kernel(helper.make_node("Erf", ["a"], ["b"]), "float", 2.0),
        Kernel(helper.make_node("Exp", ["b"], ["c2"]), "float", 9.0),
    ]
    found = float_islands(kernels, ())
    assert [k.kernel.node.op_type for k in found.kernels] == ["Exp", "Erf"]
    assert found.count == 1


@given(st.lists(st.sampled_from([*_OPS.values(), "QuantizeLinear", "DequantizeLinear"])))
def test_each_conversion_is_charged_once_at_most(ops: list[str]) -> None:
    found = chain(*ops)
    conversions = sum(op.endswith("uantizeLinear") for op in ops)
    assert sum(k.conversions for k in found.kernels) <= conversions
    assert len(found.kernels) <= ops.count("Erf")
    assert found.count <= len(found.kernels)


@pytest.mark.parametrize("length", [1, 5000])
def test_long_islands(length: int) -> None:
    found = chain("DequantizeLinear", *["Erf"] * length)
    assert (found.count, len(found.kernels)) == (1, length)
