"""Layers as products of matrices, held to onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.calibration.rounding import layer_inputs
from onnxq.calibration.rounding.layer_inputs import LayerInputs, as_matrices, as_weight
from onnxq.graph import from_proto
from onnxq.running.sessions import reference
from tests.models.zoo_build import Build

Values = np.ndarray


def layer_of(op: str, weight: Values, x: Values, **attrs: Any) -> tuple[gs.Node, Values]:
    """A layer, and what onnxruntime computes for `x`."""
    b = Build()
    made = b.model(b.op(op, b.input("x", list(x.shape)), b.init(weight), out="y", **attrs))
    model = from_proto(made)
    (node,) = model.nodes(op)
    return node, reference(model).run({"x": x})["y"]


def inputs_of(node: gs.Node, weight: Values) -> LayerInputs:
    found = LayerInputs.of(node, weight.shape)
    assert isinstance(found, LayerInputs)
    return found


def random(*shape: int, seed: int = 0) -> Values:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def assert_products(node: gs.Node, weight: Values, x: Values, y: Values) -> None:
    """|y|^2 of each output is w^T (X^T X) w: it holds if rows and weight match."""
    found, matrices = inputs_of(node, weight), as_matrices(node, weight.astype(np.float64))
    h = found.products(x, 10**6)
    assert h.shape == (found.groups, found.inputs, found.inputs)
    squares = (matrices * (h @ matrices)).sum(axis=1).reshape(-1)
    outputs = np.moveaxis(y, 1 if node.op == "Conv" else -1, 0).reshape(squares.size, -1)
    assert np.allclose(squares, np.square(outputs.astype(np.float64)).sum(axis=1), rtol=1e-4)
    assert np.array_equal(as_weight(node, as_matrices(node, weight), weight.shape), weight)


@settings(max_examples=40, deadline=None)
@given(
    rank=st.integers(1, 3),
    groups=st.integers(1, 3),
    cin=st.integers(1, 3),
    cout=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    batch=st.integers(1, 2),
)
def test_convolutions(
    rank: int,
    groups: int,
    cin: int,
    cout: int,
    kernel: int,
    stride: int,
    dilation: int,
    pads: tuple[int, int],
    batch: int,
) -> None:
    x, weight = (
        random(batch, groups * cin, *[6] * rank),
        random(groups * cout, cin, *[kernel] * rank),
    )
    attrs = {
        "group": groups,
        "strides": [stride] * rank,
        "dilations": [dilation] * rank,
        "pads": [pads[0]] * rank + [pads[1]] * rank,
    }
    node, y = layer_of("Conv", weight, x, **attrs)
    assert_products(node, weight, x, y)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_padding_by_a_rule(mode: str) -> None:
    x, weight = random(1, 4, 7, 8), random(6, 2, 3, 2)
    node, y = layer_of("Conv", weight, x, group=2, auto_pad=mode, strides=[2, 3])
    assert_products(node, weight, x, y)


def test_matrix_products() -> None:
    x, weight = random(2, 5, 7), random(7, 3)
    node, y = layer_of("MatMul", weight, x)
    assert_products(node, weight, x, y)
    for transposed in (0, 1):
        stored = np.ascontiguousarray(weight.T) if transposed else weight
        node, y = layer_of("Gemm", stored, x[0], transB=transposed)
        assert_products(node, stored, x[0], y)


def test_rows_are_chosen_evenly() -> None:
    x, weight = random(2, 3, 20, 20), random(4, 3, 3, 3)
    node, _ = layer_of("Conv", weight, x)
    found = inputs_of(node, weight)
    some, everything = found.products(x, 200), found.products(x, 10**6)
    ratio = np.trace(some[0]) / np.trace(everything[0]) * (2 * 18 * 18) / 200
    assert 0.9 < ratio < 1.1
    assert np.array_equal(some, found.products(x, 200))


def test_layers_of_other_forms_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = layer_of("ConvTranspose", random(2, 3, 3, 3), random(1, 2, 4, 4))
    assert "ConvTranspose" in str(LayerInputs.of(node, (2, 3, 3, 3)))
    node, _ = layer_of("Gemm", random(5, 3), random(5, 2), transA=1)
    assert "Gemm" in str(LayerInputs.of(node, (5, 3)))
    node, _ = layer_of("MatMul", random(2, 5, 3), random(2, 4, 5))
    assert "MatMul" in str(LayerInputs.of(node, (2, 5, 3)))
    monkeypatch.setattr(layer_inputs, "LARGEST", 4)
    node, _ = layer_of("MatMul", random(5, 3), random(4, 5))
    assert "5 inputs" in str(LayerInputs.of(node, (5, 3)))
