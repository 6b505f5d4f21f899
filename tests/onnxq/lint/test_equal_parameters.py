"""Operators that pass codes on between unequal quantizers."""

import onnx
import pytest

from tests.models.lint_cases import INT8, found
from tests.models.zoo_build import Build


def pooled(second: float, zero_point: int = 0) -> onnx.ModelProto:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4, 6, 6]), 0.1, 0, INT8)
    y = b.op("MaxPool", x, kernel_shape=[2, 2])
    return b.model(b.qdq(y, second, zero_point, INT8))


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
    assert "scale 0.1 and scale 0.2" in finding.message
    assert "onnxq quantize FLOAT_MODEL --backend openvino" in finding.fix
    assert found(make(0.1), "equal-parameters", "openvino") == []


def test_zero_points_are_told_where_the_scales_agree() -> None:
    (finding,) = found(pooled(0.1, 5), "equal-parameters", "openvino")
    assert "scale 0.1 in both, zero point 0 and zero point 5" in finding.message
    assert "RetypeActivations(..., together=True)" in finding.fix


def test_a_target_that_rescales_at_a_concat_is_content() -> None:
    assert found(joined(0.2), "equal-parameters", "onnxruntime") == []
