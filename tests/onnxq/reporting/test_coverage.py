"""Which operators run on codes: by onnxruntime's own graph, or by quantizers and placement."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.pipeline import Pipeline
from onnxq.reporting.coverage import Fate, fates
from onnxq.workflows.lint_model import subject_of
from passes.infer_shapes import InferShapes
from tests.models.build import parse_filled, quantize, weight
from tests.models.reported import float_network, quantized_network


def found(model: object, backend: str) -> dict[str, Fate]:
    subject = subject_of(model, find_backend(backend))  # type: ignore[arg-type]
    return fates(subject, Pipeline(InferShapes()).run(subject.plain).model)


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_a_quantized_network_runs_on_codes(backend: str) -> None:
    each = found(quantized_network(), backend)
    assert each["stem.bn.out"].precision == "integer"
    assert each["stem.relu.out"].kernel == "in 'stem' (Conv)"
    assert {fate.precision for fate in each.values()} == {"integer"}


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_a_float_network_has_reasons(backend: str) -> None:
    each = found(float_network(), backend)
    assert {fate.precision for fate in each.values()} == {"float"}
    assert all(fate.reason for fate in each.values())
    assert "'image' is not quantized" in each["stem.out"].reason


BODY = """g (float[N,6] x) => (float[N,3] y, int64[2] s) {
    a = MatMul(x, w)
    y = Erf(a)
    s = Shape(x)
}"""


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_integers_that_are_no_codes(backend: str) -> None:
    model = quantize(parse_filled(BODY, w=(6, 3)), "x")
    weight(model, "w", scale=np.float32(0.05))
    each = found(model, backend)
    assert each["s"].precision == "index"
    assert each["y"].precision == "float"
    assert "Erf" in each["y"].reason


def test_an_unquantized_weight_keeps_a_layer_in_float() -> None:
    each = found(quantize(parse_filled(BODY, w=(6, 3)), "x"), "tensorrt")
    assert each["a"].precision == "float"
    assert "'w' is not quantized" in each["a"].reason


def test_what_depends_on_constants_only() -> None:
    body = "g (float[3] x) => (float[3] y) { c = Exp(w)\n y = Add(x, c) }"
    for backend in ("onnxruntime", "tensorrt"):
        assert found(parse_filled(body, w=(3,)), backend)["c"].precision == "constant"


def test_a_function_that_onnxruntime_takes_apart_is_float() -> None:
    body = (
        "g (float[2,6] x) => (float[2,3] y) { a = MatMul(x, w)\n b = HardSwish(a)\n y = Relu(b) }"
    )
    model = quantize(parse_filled(body, w=(6, 3)), "x")
    weight(model, "w", scale=np.float32(0.05))
    for name in ("a", "b", "y"):
        quantize(model, name, qtype="uint8", zero_point=0 if name == "y" else 100)
    each = found(model, "onnxruntime")
    assert each["a"].precision == "integer"
    assert "takes HardSwish apart" in each["b"].reason
    assert each["y"].precision == "float"
