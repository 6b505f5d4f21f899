"""Scaling a weight along its output axis scales the layer's output channels, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from onnxq.graph import from_proto
from onnxq.operators.weight_axis import LINEAR_OPS, weight_axis
from onnxq.running import sessions
from tests.models.zoo_build import Build

Floats = np.ndarray[Any, np.dtype[np.float32]]


def layer_output(op: str, x: Floats, weight: Floats, attrs: dict[str, Any]) -> tuple[Any, Floats]:
    """The layer's node in a model, and what onnxruntime makes of x and the weight."""
    b = Build()
    proto = b.model(b.op(op, b.input("x", x.shape), b.init(weight), **attrs))
    (y,) = sessions.reference(proto).run({"x": x}).values()
    return from_proto(proto).nodes(op)[0], y


def check_scaling(
    op: str, x: Floats, weight: Floats, channel_axis: int, seed: int, **attrs: Any
) -> None:
    """W * gain on the axis of the table gives y * gain on the channels of the output."""
    rng = np.random.default_rng(seed)
    node, y = layer_output(op, x, weight, attrs)
    where = weight_axis(node, weight.ndim)
    assert where is not None
    channels = where.channels(weight.shape)
    assert channels == y.shape[channel_axis]
    # Powers of two scale without rounding, so the comparison can be exact.
    gain = rng.choice([-4.0, -1.0, 0.0, 0.25, 1.0, 2.0, 8.0], channels)
    scaled = where.scale(weight, gain)
    assert scaled.dtype == np.float64
    assert scaled.shape == weight.shape
    _, got = layer_output(op, x, scaled.astype(np.float32), attrs)
    view = [1] * y.ndim
    view[channel_axis] = channels
    np.testing.assert_array_equal(got, y * gain.reshape(view).astype(np.float32))


def floats(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SEEDS = st.integers(0, 2**16)
FEW = settings(max_examples=25, deadline=None)


@FEW
@given(seed=SEEDS, group=st.sampled_from([1, 2, 4]), per=st.integers(1, 3), rank=st.integers(1, 3))
def test_conv(seed: int, group: int, per: int, rank: int) -> None:
    weight = floats(seed, group * per, 4 // group, *[2] * rank)
    check_scaling("Conv", floats(seed + 1, 2, 4, *[4] * rank), weight, 1, seed, group=group)


@FEW
@given(
    seed=SEEDS, group=st.sampled_from([1, 2, 4]), per=st.integers(1, 3), stride=st.integers(1, 2)
)
def test_conv_transpose(seed: int, group: int, per: int, stride: int) -> None:
    weight = floats(seed, 4, per, 3, 3)
    attrs = {"group": group, "strides": [stride, stride], "pads": [1, 0, 0, 1]}
    check_scaling("ConvTranspose", floats(seed + 1, 2, 4, 4, 3), weight, 1, seed, **attrs)


@FEW
@given(
    seed=SEEDS,
    trans_a=st.integers(0, 1),
    trans_b=st.integers(0, 1),
    alpha=st.sampled_from([1.0, 0.5, -2.0]),
)
def test_gemm(seed: int, trans_a: int, trans_b: int, alpha: float) -> None:
    x = floats(seed + 1, *((5, 3) if trans_a else (3, 5)))
    weight = floats(seed, *((4, 5) if trans_b else (5, 4)))
    check_scaling("Gemm", x, weight, 1, seed, transA=trans_a, transB=trans_b, alpha=alpha)


@FEW
@given(seed=SEEDS, lead=st.sampled_from([(3,), (2, 3), (2, 2, 3), ()]), batched=st.booleans())
def test_matmul(seed: int, lead: tuple[int, ...], batched: bool) -> None:
    weight = floats(seed, *((2, 5, 4) if batched else (5, 4)))
    check_scaling("MatMul", floats(seed + 1, *lead, 5), weight, -1, seed)


def test_only_linear_layers_have_one() -> None:
    b = Build()
    x = b.input("x", [5])
    model = from_proto(b.model(b.op("Relu", b.op("MatMul", x, b.init(floats(0, 5))))))
    assert weight_axis(model.nodes("MatMul")[0], rank=1) is None
    assert weight_axis(model.nodes("Relu")[0], rank=1) is None


@pytest.mark.parametrize("op", LINEAR_OPS)
def test_operators_of_other_domains_are_unknown(op: str) -> None:
    b = Build()
    b.ops(op, b.input("x", [1, 2]), b.init(floats(0, 2, 2)), outs=["y"], domain="com.example")
    b.typed_output("y", [1, 2])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    proto = helper.make_model(b.graph(), opset_imports=opsets, ir_version=8)
    assert weight_axis(from_proto(proto).nodes(f"com.example::{op}")[0], rank=2) is None
