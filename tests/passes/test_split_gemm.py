"""A Gemm with a float result runs in integers as a product and a sum."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.graph import Model
from onnxq.running import sessions
from onnxq.workflows.convert import convert
from passes.split_gemm import SplitGemm
from tests.checks.optimized import optimized_ops
from tests.models.build import apply, parse_filled, quantize, run

TEXT = "g (float[3,16] x) => (float[3,6] y) {{ y = Gemm{attributes}(x, w{bias}) }}"


def net(attributes: str = "", bias: str = ", b", turned: bool = False, **weight: object) -> Model:
    shapes = {"w": (6, 16) if turned else (16, 6)} | ({"b": (6,)} if bias else {})
    model = parse_filled(TEXT.format(attributes=attributes, bias=bias), **shapes)
    quantize(model, "x", scale=np.float32(0.03))
    quantize(model, "w", **{"scale": np.float32(0.02), **weight})
    return model


def sample() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(3, 16)).astype(np.float32)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_it_computes_the_same_and_in_integers(turned: bool, per_channel: bool) -> None:
    grid: dict[str, object] = {}
    if per_channel:
        grid = {"scale": np.linspace(0.01, 0.03, 6).astype(np.float32), "axis": 0 if turned else 1}
    model = net("<transB = 1>" if turned else "", turned=turned, **grid)
    made, trace = apply(model, SplitGemm())
    assert len(trace.rewrites) == 1
    np.testing.assert_allclose(run(made, sample())[0], run(model, sample())[0], atol=1e-6)
    done = convert(model, "onnxruntime")
    assert done.proven
    found = optimized_ops(done.model)
    assert "MatMulIntegerToFloat" in found
    assert not {"Gemm", "DequantizeLinear"} & set(found)
    wanted = sessions.reference(model).run({"x": sample()})["y"]
    np.testing.assert_allclose(
        sessions.deployed(done.model).run({"x": sample()})["y"], wanted, atol=1e-5
    )


def test_it_happens_once() -> None:
    made, _ = apply(net(), SplitGemm())
    again, trace = apply(made, SplitGemm())
    assert trace.rewrites == []
    assert [n.op for n in again.nodes()] == [n.op for n in made.nodes()]


@pytest.mark.parametrize(
    ("attributes", "bias", "reason"),
    [
        ("", "", "bias"),
        ("<alpha = 2.0>", ", b", "factors"),
        ("<beta = 0.5>", ", b", "factors"),
    ],
)
def test_it_leaves_what_has_no_integer_product(attributes: str, bias: str, reason: str) -> None:
    _, trace = apply(net(attributes, bias), SplitGemm())
    assert trace.rewrites == []
    assert reason in trace.skips[0].reason


def test_it_leaves_float_operands_and_quantized_results() -> None:
    model = parse_filled(TEXT.format(attributes="", bias=", b"), w=(16, 6), b=(6,))
    quantize(model, "w", scale=np.float32(0.02))
    _, trace = apply(model, SplitGemm())
    assert "float" in trace.skips[0].reason
    model = net()
    quantize(model, "y", scale=np.float32(0.1))
    _, trace = apply(model, SplitGemm())
    assert trace.rewrites == []
