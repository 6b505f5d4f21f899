"""Each affine node is x * gain + shift, as onnxruntime computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.folding.affine import (
    IDENTITY,
    Affine,
    CannotFold,
    ChannelLayout,
    batch_norm,
    elementwise,
)
from onnxq.graph import Model, from_proto
from tests.models.build import parse, run
from tests.models.zoo_build import Build

X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
IMAGE = ChannelLayout(channels=3, from_end=3, rank=4)
"""Channels on axis 1 of 4."""


def binary(op: str, value: Any, constant_first: bool = False) -> Model:
    b = Build()
    args = [b.input("x", X.shape), b.init(np.asarray(value, np.float32))]
    return from_proto(b.model(b.op(op, *(reversed(args) if constant_first else args))))


def computed(step: Affine, x: np.ndarray) -> np.ndarray:
    gain, shift = (v.reshape(-1, 1, 1) for v in step.vectors(3))
    return x * gain + shift


@pytest.mark.parametrize(
    ("op", "constant_first"),
    [
        *(("Mul", False), ("Mul", True), ("Div", False)),
        *(("Add", False), ("Add", True), ("Sub", False), ("Sub", True)),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1), (3, 1, 1), (1, 3, 1, 1)])
def test_arithmetic_with_a_constant(op: str, shape: tuple[int, ...], constant_first: bool) -> None:
    value = np.array([0.7, -1.3, 2.1])[: int(np.prod(shape))].reshape(shape)
    model = binary(op, value, constant_first)
    node = model.nodes(op)[0]
    step = elementwise(node, node.inputs[int(constant_first)], IMAGE)
    assert step is not None
    np.testing.assert_allclose(computed(step, X), run(model, X)[0], rtol=3e-7, atol=3e-7)


def test_constant_over_x_is_not_affine() -> None:
    node = binary("Div", 2.0, constant_first=True).nodes("Div")[0]
    with pytest.raises(CannotFold, match="divides a constant"):
        elementwise(node, node.inputs[1], IMAGE)


@pytest.mark.parametrize("shape", [(5,), (4, 1), (3,), (2, 1, 1, 1), (3, 1), (1, 1, 3, 1, 1)])
def test_a_constant_along_other_axes_is_declined(shape: tuple[int, ...]) -> None:
    value = np.ones(shape, np.float32)
    assert IMAGE.vector(value) is None


def test_two_activations_are_no_affine_step() -> None:
    model = parse("g (float[3] x, float[3] z) => (float[3] y) { y = Add(x, z) }")
    node = model.nodes("Add")[0]
    assert elementwise(node, node.inputs[0], ChannelLayout(3, 1, 1)) is None


def test_last_axis_of_known_least_rank() -> None:
    layout = ChannelLayout(channels=3, from_end=1, rank=2)
    np.testing.assert_array_equal(layout.vector(np.arange(3.0)), [0, 1, 2])
    np.testing.assert_array_equal(layout.vector(np.arange(3.0)[None]), [0, 1, 2])
    assert layout.vector(np.arange(3.0)[None, None]) is None, "it would raise the rank"
    assert layout.vector(np.float32(2)) == 2.0


@pytest.mark.parametrize("epsilon", [None, 0.1])
def test_batch_norm(epsilon: float | None) -> None:
    b = Build()
    bn = b.bn(b.input("x", X.shape), 3, gamma=[1.5, 0.0, -0.4], epsilon=epsilon)
    model = from_proto(b.model(bn))
    step = batch_norm(model.nodes("BatchNormalization")[0])
    assert isinstance(step.gain, np.ndarray)
    assert step.gain.dtype == np.float64
    assert step.gain[1] == 0
    np.testing.assert_allclose(computed(step, X), run(model, X)[0], rtol=1e-6, atol=1e-6)


BN = """g (float[2,3] x{extra}) => (float[2,3] y)
<float[3] s = {{1,2,3}}, float[3] b = {{0,0,1}}, float[3] m = {{1,0,0}}, float[3] v = {{{var}}}>
{{ y{outs} = BatchNormalization<{attrs}>(x, {scale}, b, m, v) }}"""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"attrs": "training_mode=1", "outs": ", m1, v1"}, "training"),
        ({"outs": ", m1, v1"}, "training"),
        ({"extra": ", float[3] g", "scale": "g"}, "'g' is not a constant"),
    ],
)
def test_batch_norm_that_cannot_be_read(fields: dict[str, str], reason: str) -> None:
    defaults = {"extra": "", "var": "1,1,1", "outs": "", "attrs": "epsilon=0.5", "scale": "s"}
    node = parse(BN.format(**(defaults | fields))).nodes("BatchNormalization")[0]
    with pytest.raises(CannotFold, match=reason):
        batch_norm(node)


def test_a_negative_variance_is_declined_without_a_warning() -> None:
    text = BN.format(extra="", var="1,-2,1", outs="", attrs="epsilon=0.5", scale="s")
    step = batch_norm(parse(text).nodes("BatchNormalization")[0])
    with pytest.raises(CannotFold, match="finite"):
        step.vectors(3)


def test_division_by_zero_is_declined_without_a_warning() -> None:
    for value in (0.0, np.array([1.0, 0.0, 2.0]).reshape(3, 1, 1)):
        node = binary("Div", value).nodes("Div")[0]
        step = elementwise(node, node.inputs[0], IMAGE)
        assert step is not None
        with pytest.raises(CannotFold, match="finite"):
            step.vectors(3)


def test_wrong_number_of_channels_is_declined() -> None:
    with pytest.raises(CannotFold, match="2 channels, the layer 3"):
        Affine(np.ones(2), 0.0).then(Affine(np.ones(2), np.zeros(2))).vectors(3)


def test_steps_compose_in_order() -> None:
    step = IDENTITY.then(Affine(2.0, 1.0)).then(Affine(np.array([3.0, -1.0]), 5.0))
    gain, shift = step.vectors(2)
    np.testing.assert_array_equal(gain, [6, -2])
    np.testing.assert_array_equal(shift, [8, 4])
