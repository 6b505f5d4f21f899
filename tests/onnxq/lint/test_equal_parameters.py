"""Operators that pass codes on between unequal quantizers."""

import onnx
import pytest

from tests.models.lint_cases import INT8, found
from tests.models.zoo_build import Build


def pooled(second: float) -> onnx.ModelProto:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4, 6, 6]), 0.1, 0, INT8)
    y = b.op("MaxPool", x, kernel_shape=[2, 2])
    return b.model(b.qdq(y, second, 0, INT8))


def joined(second: float) -> onnx.ModelProto:
    b = Build(17)
    x = b.input("x", [1, 4, 6, 6])
    parts = [b.qdq(b.op(op, x), s, 0, INT8) for op, s in (("Relu", 0.1), ("Tanh", second))]
    return b.model(b.op("Concat", *parts, axis=1))


@pytest.mark.parametrize("make", [pooled, joined])
def test_unequal_ranges_are_found(make: object) -> None:
    assert callable(make)
    (finding,) = found(make(0.2), "equal-parameters", "openvino")
    assert finding.severity == "warning"
    assert "0.1 and 0.2" in finding.message
    assert found(make(0.1), "equal-parameters", "openvino") == []


def test_a_target_that_rescales_at_a_concat_is_content() -> None:
    assert found(joined(0.2), "equal-parameters", "onnxruntime") == []
