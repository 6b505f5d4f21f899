"""float16 biases that onnxruntime turns into wrong codes."""

import numpy as np
import onnx
import pytest

from onnxq.running.sessions import Kind, session
from tests.models.lint_cases import found
from tests.models.zoo_build import Build


def conv(
    largest: float, dtype: type = np.float16, between: str = "", behind: bool = True
) -> onnx.ModelProto:
    """A quantized Conv whose bias has codes up to `largest` / 1e-6, and a quantizer behind it."""
    b = Build(21)
    x = b.input("x", [1, 3, 6, 6], onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    random = np.random.default_rng(0)
    w = b.init(random.integers(-127, 128, (4, 3, 3, 3), np.int8))
    bias = b.init(np.array([largest, 0.01, -0.02, 0], dtype))
    sx, sw, zero = (b.init(v) for v in (dtype(0.01), dtype(1e-4), np.int8(0)))

    def quantized(tensor: str) -> str:
        return b.op("DequantizeLinear", b.op("QuantizeLinear", tensor, sx, zero), sx, zero)

    y = b.op("Conv", quantized(x), b.op("DequantizeLinear", w, sw, zero), bias)
    y = b.op(between, y) if between else y
    return b.model(quantized(y) if behind else y)


@pytest.mark.parametrize("backend", ["onnxruntime", "qnn", "tensorrt", "tensorrt-nlp"])
def test_codes_beyond_float16_are_found(backend: str) -> None:
    (finding,) = found(conv(0.5), "half-biases", backend)
    assert finding.severity == "warning"
    assert "codes up to 499810" in finding.message
    assert "WeightBiasQuantization" in finding.fix


@pytest.mark.parametrize(("largest", "dtype"), [(0.05, np.float16), (0.5, np.float32)])
def test_others_are_fine(largest: float, dtype: type) -> None:
    assert found(conv(largest, dtype), "half-biases") == []


@pytest.mark.parametrize(
    ("largest", "between", "behind", "is_wrong"),
    [
        (0.5, "", True, True),
        (0.5, "Relu", True, True),
        (0.5, "", False, False),
        (0.05, "", True, False),
    ],
)
def test_onnxruntime_computes_with_another_bias(
    largest: float, between: str, behind: bool, is_wrong: bool
) -> None:
    """The reason for the rule; it fails when onnxruntime mends this."""
    model = conv(largest, between=between, behind=behind)
    assert bool(found(model, "half-biases")) == is_wrong
    x = {"x": np.zeros((1, 3, 6, 6), np.float16)}
    kinds: tuple[Kind, Kind] = ("reference", "shipped")
    plain, optimised = (
        next(iter(session(model, kind).run(x).values())).astype(np.float64) for kind in kinds
    )
    assert (np.abs(plain - optimised).max() > 0.2) == is_wrong
