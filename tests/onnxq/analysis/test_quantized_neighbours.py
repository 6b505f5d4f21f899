"""What makes codes and what reads them, through operators that onnxruntime looks through."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.analysis.quantized_neighbours import becomes_codes, comes_from_codes
from tests.models.build import parse, quantize, tensor

NET = """g (float[2,3] x) => (float[3,2] y) {
    a = {first}(x)  b = Transpose(a)  y = {last}(b)
}"""


@pytest.mark.parametrize(("last", "read"), [("Relu", True), ("Identity", True), ("Exp", False)])
def test_quantizers_after_activation_functions_count(last: str, read: bool) -> None:
    model = parse(NET.replace("{first}", "Neg").replace("{last}", last))
    assert not becomes_codes(tensor(model, "b"))
    quantize(model, "y", scale=np.float32(0.1))
    assert becomes_codes(tensor(model, "b")) is read
    assert becomes_codes(tensor(model, "a")) is read


@pytest.mark.parametrize(("first", "made"), [("Neg", True), ("Relu", True)])
def test_quantizers_before_moving_operators_count(first: str, made: bool) -> None:
    model = parse(NET.replace("{first}", first).replace("{last}", "Exp"))
    assert not comes_from_codes(tensor(model, "b"))
    quantize(model, "a", scale=np.float32(0.1))
    assert comes_from_codes(tensor(model, "b")) is made
    assert not comes_from_codes(tensor(model, "y"))
    assert not comes_from_codes(tensor(model, "x"))
