from __future__ import annotations

import onnx
import pytest

from onnxq.operators.integer_operators import (
    BLOCKED_DOMAIN,
    CHANNELS_LAST_DOMAINS,
    MICROSOFT,
    QOPERATORS,
    find,
    is_channels_last,
    spellings,
)


@pytest.mark.parametrize("name", sorted(QOPERATORS))
def test_positions_agree_with_the_operator_onnx_defines(name: str) -> None:
    operator = QOPERATORS[name]
    try:
        schema = onnx.defs.get_schema(name)
    except onnx.defs.SchemaError:
        assert not operator.standard
        return
    names = [i.name.lower() for i in schema.inputs]
    for at in operator.operands:
        assert names[at + 1] == f"{names[at]}_scale"
        assert names[at + 2] == f"{names[at]}_zero_point"
    assert names[operator.result : operator.result + 2] == ["y_scale", "y_zero_point"]
    assert operator.bias is None or names[operator.bias] == "b"


@pytest.mark.parametrize("name", sorted(QOPERATORS))
def test_the_float_twin_is_an_onnx_operator(name: str) -> None:
    assert onnx.defs.get_schema(QOPERATORS[name].twin).name == QOPERATORS[name].twin


def test_operators_are_found_in_the_domains_they_exist_in() -> None:
    assert find("", "QLinearConv") is find(MICROSOFT, "QLinearConv") is QOPERATORS["QLinearConv"]
    assert find("", "QLinearAdd") is None, "ONNX has no QLinearAdd"
    assert find(MICROSOFT, "QLinearAdd") is not None
    assert find(BLOCKED_DOMAIN, "QLinearConv") is None
    assert find("", "Conv") is None
    assert "QLinearConv" in spellings("QLinearConv")
    assert "QLinearAdd" not in spellings("QLinearAdd")
    assert "com.microsoft::QLinearAdd" in spellings("QLinearAdd")


def test_concat_has_any_number_of_operands() -> None:
    assert QOPERATORS["QLinearConcat"].positions(8) == (2, 5)
    assert QOPERATORS["QLinearConcat"].positions(11) == (2, 5, 8)
    assert QOPERATORS["QLinearAdd"].positions(8) == (0, 3)


def test_channels_come_last_by_attribute_or_domain() -> None:
    assert not is_channels_last("", {})
    assert is_channels_last(MICROSOFT, {"channels_last": 1})
    assert not is_channels_last(MICROSOFT, {"channels_last": 0})
    assert all(is_channels_last(domain, {}) for domain in CHANNELS_LAST_DOMAINS)
