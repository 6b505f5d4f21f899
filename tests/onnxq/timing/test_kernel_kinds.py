"""What kernels compute with."""

from __future__ import annotations

import pytest

from onnxq.timing.kernel_kinds import INTEGER, Kind, kind_of
from tests.checks.optimized import INTEGER_OPS


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "kind"),
    [
        ("QLinearConv", ["uint8"], ["uint8"], "integer"),
        ("MatMulIntegerToFloat", ["uint8"], ["float"], "integer"),
        ("DynamicQuantizeMatMul", ["float"], ["float"], "integer"),
        ("DynamicQuantizeLinear", ["float"], ["uint8"], "conversion"),
        ("DequantizeLinear", ["int8"], ["float"], "conversion"),
        ("QuantizeLinear", ["float"], ["uint16"], "conversion"),
        ("MaxPool", ["uint8"], ["uint8"], "moves"),
        ("Conv", ["float", "float"], ["float"], "float"),
        ("MatMulNBits", ["float", "uint8"], ["float"], "float"),
        ("Cast", ["uint8"], ["float16"], "float"),
        ("Shape", ["float"], ["int64"], "other"),
        ("Greater", ["float"], ["bool"], "other"),
        ("Conv", [], [], "other"),
    ],
)
def test_kind(op: str, inputs: list[str], outputs: list[str], kind: Kind) -> None:
    assert kind_of(op, inputs, outputs) == kind


def test_every_operator_that_onnxruntime_fuses_into_is_an_integer_one() -> None:
    assert INTEGER >= INTEGER_OPS
